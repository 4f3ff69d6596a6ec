// Names the place of an exception in a step: the stage, its layers or the running one, the microbatch, and the input.
#pragma once

#include <string>

#include "gantry/core/error.h"
#include "gantry/nn/forward.h"
#include "gantry/plugins/step/step_part.h"

namespace gantry {

// Throws UserError for the current exception, or rethrows it if it is an error with its own exit code. The
// place is added to the error about a missing entry.
[[noreturn]] void throw_with_place(const char* what, const StageModule& model, const StageCall& call,
                                   const TensorDict& given, const ForwardReport& report);

// Runs a computation. Errors of Gantry pass unchanged, except for the error about a missing entry.
template <class Run>
auto with_place(const char* what, const StageModule& model, const StageCall& call, const TensorDict& given,
                const ForwardReport& report, Run run) try {
  return run();
} catch (const InputError&) {
  throw_with_place(what, model, call, given, report);
} catch (const Error&) {
  throw;
} catch (...) {
  throw_with_place(what, model, call, given, report);
}

}  // namespace gantry
