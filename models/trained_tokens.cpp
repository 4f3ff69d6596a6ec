#include "gantry/models/trained_tokens.h"

#include <fmt/format.h>
#include <string>

#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

void train_tokens(torch::nn::Module& model, const std::vector<int>& tokens) {
  const std::string key = "lora.trainable_token_indices";
  const auto* decoder = dynamic_cast<const DecoderImpl*>(&model);
  if (!decoder)
    throw ConfigError({key, "the model is not a described decoder", "a model of a decoder family",
                       "remove the key, or list the embedding in lora.modules_to_save"});
  const DecoderSpec& spec = decoder->spec;
  for (const int token : tokens)
    if (token >= spec.vocabulary)
      throw ConfigError({key, fmt::format("token {} is outside the vocabulary of {} tokens", token, spec.vocabulary),
                         fmt::format("0 to {}", spec.vocabulary - 1), "remove the token"});
  auto& table = dynamic_cast<nn::EmbeddingImpl&>(*model.named_modules()[spec.names.tokens]);
  if (table.weight.requires_grad() || table.has_adapter())
    throw ConfigError({key,
                       fmt::format("{} is also in lora.{}", spec.names.tokens,
                                   table.has_adapter() ? "target_modules" : "modules_to_save"),
                       "only one of the two", "remove one entry"});
  table.train_tokens({tokens.begin(), tokens.end()});
  if (spec.tied)
    dynamic_cast<nn::LinearImpl&>(*model.named_modules()[spec.names.head]).share_tokens(table.trained_tokens());
}

}  // namespace gantry::models
