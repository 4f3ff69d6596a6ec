// The model's continuations of a few prompts during a run (evaluation.prompts).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/generation/generate.h"
#include "gantry/generation/prompt_text.h"
#include "gantry/plugins/plugin.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

class ContinuedPrompts {
 public:
  // Returns null without evaluation.prompts. The configuration must be resolved. Image files are relative to
  // the working directory. Throws ConfigError without a tokenizer, if a prompt has images and the run does
  // not read images, or if a prompt is too long for the model. Throws InputError for a chat or an image that
  // cannot be read.
  static std::unique_ptr<ContinuedPrompts> of(const Config& config);

  // Continues each prompt greedily up to the tokenizer's end token, by at most evaluation.prompt_tokens
  // tokens. The result is the same on all ranks. Collective over the world.
  std::vector<ContinuedPrompt> make(Boosted& boosted, Plugin& plugin) const;

 private:
  ContinuedPrompts(const Config& config, const std::string& tokenizer);

  void encode(const Config& config, const std::string& tokenizer);

  std::vector<EvaluationPrompt> prompts_;
  PromptText text_;
  std::vector<TokenIds> tokens_;  // one list per prompt
  GenerationOptions options_;
};

}  // namespace gantry
