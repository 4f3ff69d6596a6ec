// The check of policies that serve one of several families with the same module.
#pragma once

#include <fmt/format.h>
#include <string>

#include "gantry/core/error.h"

namespace gantry {

// Throws ConfigError if a model of the family `model` got the policy of the family `policy`.
inline void validate_family(const std::string& policy, const std::string& model) {
  if (policy == model) return;
  throw ConfigError({"model.policy", fmt::format("the policy is {}, but the model is a {}", policy, model),
                     "the model's own family", fmt::format("set model.policy to {}", model)});
}

}  // namespace gantry
