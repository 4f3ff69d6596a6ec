#include "gantry/launch/supervisor/restart_policy.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry::launcher {
namespace {

constexpr double kLongestWait = 60;

bool may_pass(int exit_code) {
  return exit_code == InternalError::kExitCode || exit_code == ResourceError::kExitCode ||
         exit_code == PeerError::kExitCode || exit_code == NumericalError::kExitCode ||
         exit_code == UserError::kExitCode;
}

std::string at_step(const JobFailure& failure) {
  return failure.step ? fmt::format("after step {}", *failure.step) : "at an unknown step";
}

bool is_same(const JobFailure& a, const JobFailure& b) {
  return a.verdict.exit_code == b.verdict.exit_code && a.verdict.cause == b.verdict.cause && a.step == b.step;
}

}  // namespace

RestartDecision decide_restart(int restarts, int starts, const std::string& checkpoints, const JobFailure& failure,
                               const std::optional<JobFailure>& before) {
  if (restarts == 0) return {};
  const int code = failure.verdict.exit_code;
  if (!may_pass(code)) return {.line = fmt::format("no restart: the same failure would follow (exit code {})", code)};
  if (checkpoints.empty())
    return {.line =
                "no restart: without checkpoints training would start from scratch; set checkpoint.path (or, for your "
                "own program, --checkpoints)"};
  if (before && is_same(*before, failure))
    return {.line = fmt::format("no restart: the same failure twice {}", at_step(failure))};
  if (starts > restarts) return {.line = fmt::format("no restart: all {} restarts are used up", restarts)};
  const double seconds = std::min(kLongestWait, static_cast<double>(1LL << std::min(starts - 1, 20)));
  return {true, seconds,
          fmt::format("failed {}; starting again in {} s ({} of {})", at_step(failure), seconds, starts, restarts)};
}

}  // namespace gantry::launcher
