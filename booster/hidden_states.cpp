#include "gantry/booster/hidden_states.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gantry/checkpoint/hugging_face.h"
#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/models/described/decoder_family.h"
#include "gantry/models/hidden_states.h"
#include "gantry/models/model_family.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

models::DecoderImpl& decoder_of(torch::nn::Module& model, const std::string& which) {
  auto* decoder = dynamic_cast<models::DecoderImpl*>(&model);
  if (decoder && models::predicts_tokens(decoder->spec)) return *decoder;
  throw ConfigError({"train.objective.hidden_weight", "the " + which + " does not return its hidden states",
                     "a decoder of one of Gantry's families that predicts tokens", "remove the key"});
}

// The size of the hidden states before the head.
std::int64_t size_of_teacher(const std::string& folder) try {
  const nlohmann::json keys = read_model_config(folder);
  return models::embedding_columns(models::decoder_spec(models::family_of(keys), keys));
} catch (const ConfigError& error) {
  throw ConfigError({"train.objective.teacher",
                     "the size of the hidden states of " + folder + " is unknown: " + error.what(),
                     "a decoder of one of Gantry's families", "choose another directory, or remove hidden_weight"});
}

}  // namespace

void add_hidden_states(torch::nn::Module& model, const Config& config) {
  const ObjectiveConfig& objective = config.train.objective;
  if (objective.hidden_weight == 0) return;
  models::DecoderImpl& decoder = decoder_of(model, "student");
  const std::int64_t size = size_of_teacher(objective.teacher);
  if (size == models::embedding_columns(decoder.spec)) return decoder.return_hidden_states();
  decoder.return_hidden_states(size);
  set_dtype(*decoder.named_children()[models::kHiddenProjection], dtype_of(config.precision));
}

void return_hidden_states(torch::nn::Module& teacher) { decoder_of(teacher, "teacher").return_hidden_states(); }

}  // namespace gantry
