#include "gantry/comm/wait_limits.h"

#include <cstdio>
#include <fmt/format.h>
#include <limits>

namespace gantry {

std::string ended_early_text(const std::string& who, const std::string& what, const std::string& ended) {
  return fmt::format(
      "{} waits for {}; {} has ended its work; expected all ranks to make the same calls; see why its "
      "body returned before the others'",
      who, what, ended);
}

double SlowWaitNotices::due_seconds() const {
  const bool is_off =
      limits_.notice_seconds >= limits_.timeout_seconds || said_.load(std::memory_order_relaxed) >= kMost;
  return is_off ? std::numeric_limits<double>::infinity() : limits_.notice_seconds;
}

void SlowWaitNotices::say(const std::string& waited) {
  const int before = said_.fetch_add(1, std::memory_order_relaxed);
  if (before >= kMost) return;
  const std::string line =
      fmt::format("warning: {}; the job ends after {} s of it (comm.timeout_seconds){}\n", waited,
                  limits_.timeout_seconds, before + 1 < kMost ? "" : "; further ones are not told");
  std::fputs(line.c_str(), stderr);
}

}  // namespace gantry
