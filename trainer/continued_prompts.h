// What a model makes of a few texts in the midst of a run (evaluation.prompts).
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
  // Null without evaluation.prompts. The configuration is resolved; image files are relative to the working directory.
  // Throws ConfigError if there is no tokenizer or if the run does not read images, and InputError for a chat or an
  // image that cannot be read.
  static std::unique_ptr<ContinuedPrompts> of(const Config& config);

  // Each prompt continued by the likeliest tokens, to the tokenizer's end token and evaluation.prompt_tokens at most.
  // The same on all ranks. Collective over the world.
  std::vector<ContinuedPrompt> make(Boosted& boosted, Plugin& plugin) const;

 private:
  ContinuedPrompts(const Config& config, const std::string& tokenizer);

  void encode(const Config& config, const std::string& tokenizer);

  std::vector<EvaluationPrompt> prompts_;
  PromptText text_;
  std::vector<TokenIds> tokens_;  // one list for each prompt
  GenerationOptions options_;
};

}  // namespace gantry
