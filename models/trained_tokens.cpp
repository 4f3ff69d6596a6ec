#include "gantry/models/trained_tokens.h"

#include <fmt/format.h>
#include <string>

#include "gantry/core/error.h"
#include "gantry/models/decoder.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::models {

TokenLayers token_layers(torch::nn::Module& model, const std::vector<int>& tokens) {
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
  const auto modules = model.named_modules();
  return {spec.names.tokens, dynamic_cast<nn::EmbeddingImpl*>(modules[spec.names.tokens].get()),
          spec.tied ? dynamic_cast<nn::LinearImpl*>(modules[spec.names.head].get()) : nullptr};
}

void train_tokens(torch::nn::Module& model, const std::vector<int>& tokens) {
  const auto [path, table, head] = token_layers(model, tokens);
  table->train_tokens({tokens.begin(), tokens.end()});
  if (head) head->share_tokens(table->trained_tokens());
}

}  // namespace gantry::models
