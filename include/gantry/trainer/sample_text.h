// The text that a trained model makes of a prompt, for people to see what it has learnt.
#pragma once

#include <functional>
#include <string>

#include "gantry/generation/prompt_text.h"
#include "gantry/plugins/plugin.h"

namespace gantry {

class SampleText {
 public:
  // The tokenizer is the configuration's, or the one in model.path. The configuration is resolved. UsageError where
  // there is none, so that it is heard before a run begins.
  SampleText(std::string prompt, const Config& config);

  // What the likeliest tokens make of the prompt, as far as the model's positions go and 240 tokens at most; of a long
  // prompt its end is taken. On rank 0, "" on others. `ends` is as in GenerationOptions. Collective over the world.
  std::string make(Boosted& boosted, Plugin& plugin, const std::function<bool()>& ends = {}) const;

 private:
  std::string prompt_;
  PromptText text_;
  std::int64_t positions_;  // the model's
};

}  // namespace gantry
