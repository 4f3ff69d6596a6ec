// A policy that serves the models of one of several families with the same module.
#pragma once

#include <fmt/format.h>
#include <string>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/policies/policy.h"

namespace gantry {

// `Base`: a PolicyFor the module `Model`, whose config or spec has the name of the family.
template <class Base, class Model>
class OfFamily : public Base {
 public:
  explicit OfFamily(std::string family) : family_(std::move(family)) {}

  PolicyFit fit(const torch::nn::Module& model) const override {
    const auto* typed = dynamic_cast<const Model*>(&model);
    return typed && family_of(*typed) == family_ ? Base::fit(model) : PolicyFit::kNone;
  }
  void validate_model(const Model& model) const override {
    const std::string& family = family_of(model);
    if (family != family_)
      throw ConfigError({"model.policy", fmt::format("the policy is {}, but the model is a {}", family_, family),
                         "the model's own family", fmt::format("set model.policy to {}", family)});
  }

 private:
  static const std::string& family_of(const Model& model) {
    if constexpr (requires { model.config.family; })
      return model.config.family;
    else
      return model.spec.family;
  }

  std::string family_;
};

}  // namespace gantry
