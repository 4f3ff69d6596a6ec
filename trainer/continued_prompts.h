// What a model makes of a few texts in the midst of a run (evaluation.prompts).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/generation/chat_prompts.h"
#include "gantry/generation/prompt_text.h"
#include "gantry/plugins/plugin.h"
#include "gantry/trainer/metrics.h"

namespace gantry {

class ContinuedPrompts {
 public:
  // Null without evaluation.prompts. The configuration is resolved. ConfigError where there is no tokenizer.
  static std::unique_ptr<ContinuedPrompts> of(const Config& config);

  // Each prompt continued by the likeliest tokens, to the tokenizer's end token and evaluation.prompt_tokens at most.
  // The same on all ranks. Collective over the world.
  std::vector<ContinuedPrompt> make(Boosted& boosted, Plugin& plugin) const;

 private:
  ContinuedPrompts(const Config& config, const std::string& tokenizer);

  TokenIds tokens_of(const EvaluationPrompt& prompt) const;

  std::vector<EvaluationPrompt> prompts_;
  std::int64_t new_tokens_;
  PromptText text_;
  std::unique_ptr<ChatPrompts> chats_;  // null if no prompt is a chat
  std::vector<std::int64_t> ends_;
};

}  // namespace gantry
