// The work of a model's layers from the keys of its config.json, without building it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/core/context_method.h"
#include "gantry/models/described/decoder_spec.h"
#include "gantry/schedule/layer_work.h"

namespace gantry::models {

// The work of a described decoder, by the weights of its layers (model_flops.h). Only the experts that a
// token uses count. The layers of an image encoder's tower come first, with the work for one feature, as if
// every token belonged to an image.
LayerWork layer_work_of(const DecoderSpec& spec);

// The fewest heads of any layer's attention; none if no layer has attention.
AttentionHeads fewest_heads(const DecoderSpec& spec);
// Names the first layer whose mixer has fewer heads or channels on one of `tensor` tensor ranks than `context` ranks
// share; empty: there is none.
std::string context_objection(const DecoderSpec& spec, int context, int tensor);
// Throws ConfigError if there is such a layer.
void require_context(const DecoderSpec& spec, int context, int tensor);

// The description of a model, from the keys of its config.json as in layer_work_in(). Absent if it is not a
// described decoder. Throws ConfigError if the family does not support the values of the keys.
std::optional<DecoderSpec> described_decoder(const nlohmann::json& model_keys, const std::string& family = "");
// The keys of config.json in the model's directory, overridden by the keys in the configuration of the run.
nlohmann::json keys_of_model(const ModelConfig& model);

// The number of layers: by the outline (model_outline.h) for a program's own family, otherwise by the model's
// keys; 0: unknown.
int layers_of(const nlohmann::json& model_keys, const std::string& family = "");

// The multiplications for one token: one for each weight in the matrices of a layer and of the head. A
// backward has twice as many, so the shares of the layers are the same. `family`: the name of the policy,
// "llama" or "bert"; empty: model_type of the keys. For a family unknown to Gantry, all layers are equal, and
// `last` is 0, because the head is unknown. Throws ConfigError if the family does not support the values of
// the keys.
LayerWork layer_work_in(const nlohmann::json& model_keys, int layers, const std::string& family = "");

}  // namespace gantry::models
