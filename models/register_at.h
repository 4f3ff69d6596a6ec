// Registers modules below a root at paths of several parts.
#pragma once

#include <string>

#include <torch/nn/module.h>

#include "gantry/nn/linear.h"

namespace gantry::models {

// Registers a module at "self_attn.q_proj": in a plain module "self_attn", which is made where there is none yet.
template <class Holder>
Holder register_at(torch::nn::Module& root, const std::string& path, Holder module) {
  torch::nn::Module* parent = &root;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const std::string part = path.substr(begin, dot - begin);
    const auto children = parent->named_children();
    parent = children.contains(part) ? children[part].get()
                                     : parent->register_module(part, std::make_shared<torch::nn::Module>()).get();
    begin = dot + 1;
  }
  return parent->register_module(path.substr(begin), module);
}

inline nn::Linear linear_at(torch::nn::Module& root, const std::string& path, std::int64_t in, std::int64_t out,
                            bool bias) {
  return register_at(root, path, nn::Linear(torch::nn::LinearOptions(in, out).bias(bias)));
}

}  // namespace gantry::models
