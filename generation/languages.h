// Texts whose language nobody names: it is the one whose token the model finds likeliest behind the start token.
#pragma once

#include <functional>

#include "gantry/generation/plan.h"

namespace gantry::generation {

// The forwards of one plan, in whatever layout; every rank gets every sequence.
using RunPlan = std::function<std::vector<GeneratedSequence>(const Plan& plan, const std::vector<TokenIds>& prompts)>;

// One call of generate() by `run`, which runs for the languages first where they are detected.
std::vector<GeneratedSequence> generate_by(const RunPlan& run, const std::vector<TokenIds>& given,
                                           const GenerationOptions& options, const Continuation& continuation,
                                           const std::string& policy);

}  // namespace gantry::generation
