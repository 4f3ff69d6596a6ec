// The options of generate() by the flags of `gantry generate` and `gantry chat`.
#pragma once

#include "gantry/cli/engine/trained_model.h"
#include "gantry/cli/generate_command.h"
#include "gantry/generation/generate.h"
#include "gantry/generation/prompt_text.h"

namespace gantry::cli {

// `text`: the tokenizer; null if none is known. Throws UsageError for a stop token that is none, and for a flag that
// has no effect.
GenerationOptions options_of(const GenerateArguments& given, const TrainedModel& model, const PromptText* text);

}  // namespace gantry::cli
