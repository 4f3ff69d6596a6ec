#include "gantry/comm/control/silence_watch.h"

#include <algorithm>

namespace gantry {

SilenceWatch::SilenceWatch(double heartbeat, double lost_after, double now)
    : heartbeat_(heartbeat), lost_after_(lost_after), last_look_(now) {
  plan(now, /*late=*/true);
}

// A busy machine wakes a thread some tenths of a second late; more than this was a pause.
double SilenceWatch::awake(double now) const {
  const double slack = 0.1 + heartbeat_ / 2;
  return awake_ + std::min(now, planned_ + slack) - last_look_;
}

void SilenceWatch::heard(int peer, double now) { heard_[peer] = awake(now); }

void SilenceWatch::forget(int peer) { heard_.erase(peer); }

std::optional<SilenceWatch::Silent> SilenceWatch::look(double now) {
  const double awake_now = awake(now);
  const bool late = awake_now < awake_ + now - last_look_;
  awake_ = awake_now;
  last_look_ = now;
  plan(now, late);
  if (late || heard_.empty()) return std::nullopt;
  const auto oldest =
      std::min_element(heard_.begin(), heard_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const double silence = awake_ - oldest->second;
  if (silence < lost_after_) return std::nullopt;
  return Silent{oldest->first, silence};
}

void SilenceWatch::plan(double now, bool late) {
  planned_ = now + heartbeat_;
  if (late) return;
  for (const auto& [peer, heard] : heard_)
    if (const double left = heard + lost_after_ - awake_; left > 0) planned_ = std::min(planned_, now + left);
}

}  // namespace gantry
