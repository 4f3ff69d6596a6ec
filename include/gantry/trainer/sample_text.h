// Generates a continuation of a prompt, to show what a trained model has learnt.
#pragma once

#include <functional>
#include <string>

#include "gantry/generation/prompt_text.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

class SampleText {
 public:
  // Uses the tokenizer of the configuration, or that of model.path. The configuration must be resolved. Throws
  // UsageError if there is no tokenizer, so construct it before the run.
  SampleText(std::string prompt, const Config& config);

  // Returns the prompt and its greedy continuation. Both together have at most 240 tokens, or the model's maximum
  // length if that is smaller; of a long prompt only the end is used. Returns "" on ranks other than 0. `ends`: see
  // GenerationOptions. Collective over the world.
  std::string make(Boosted& boosted, Plugin& plugin, const std::function<bool()>& ends = {}) const;

 private:
  std::string prompt_;
  PromptText text_;
  std::int64_t positions_;  // maximum length of the model
};

}  // namespace gantry
