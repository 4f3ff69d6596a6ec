// Descriptions of models that a program's own family builds, for `gantry config` and `gantry plan`. Independent of
// LibTorch.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/core/registry.h"
#include "gantry/models/described/decoder_spec.h"
#include "gantry/schedule/layer_work.h"

namespace gantry::models {

struct ModelOutline {
  LayerWork work;                   // the policy's, or the weights of matrices
  std::optional<DecoderSpec> spec;  // not set: the planner cannot describe the model, for the reason `without_spec`
  std::string without_spec = {};
};

// By name of the family: returns the outline of the model with these keys. The engine fills it (policies/
// model_outline.h), because only LibTorch can build the models.
using OutlineOfKeys = std::function<const ModelOutline&(const nlohmann::json& keys)>;
Registry<OutlineOfKeys>& outlines();

// The spec of this outline. Throws ConfigError if there is none.
const DecoderSpec& require_spec(const ModelOutline& outline, const std::string& family);

}  // namespace gantry::models
