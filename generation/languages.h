// Detection of the language of texts: the language whose token is the most likely one after the start token.
#pragma once

#include <functional>

#include "gantry/generation/plan.h"

namespace gantry::generation {

// Runs the forwards of one plan in the layout of the model. Every rank gets all sequences.
using RunPlan = std::function<std::vector<GeneratedSequence>(const Plan& plan, const std::vector<TokenIds>& prompts)>;

// Runs one call of generate() with `run`. If languages have to be detected, `run` is called for them first.
std::vector<GeneratedSequence> generate_by(const RunPlan& run, const std::vector<TokenIds>& given,
                                           const GenerationOptions& options, const Continuation& continuation,
                                           const std::string& policy);

}  // namespace gantry::generation
