#include "gantry/comm/control/heartbeats.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/steady_seconds.h"

namespace gantry {

SilenceWatch::SilenceWatch(double heartbeat, double lost_after, double now)
    : heartbeat_(heartbeat), lost_after_(lost_after), last_look_(now) {
  plan(now, /*late=*/true);
}

// A busy machine wakes a thread some tenths of a second late. A longer delay counts as a pause of this
// process.
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

std::string silence_text(double seconds, double lost_after) {
  return fmt::format(
      "no heartbeat for {:.1f} s; expected at least one every {} s (comm.lost_after_seconds); check whether its "
      "process is suspended or its host is unreachable",
      seconds, lost_after);
}

}  // namespace gantry

namespace gantry::control {

Heartbeats::Heartbeats(asio::io_context& context, Rules rules)
    : context_(context),
      rules_(std::move(rules)),
      silence_(rules_.heartbeat, rules_.lost_after, steady_seconds()),
      timer_(context) {}

void Heartbeats::start() { spawn(context_, run()); }

void Heartbeats::stop() {
  stopped_ = true;
  timer_.cancel();
}

void Heartbeats::heard(int peer) {
  if (rules_.lost_after > 0) silence_.heard(peer, steady_seconds());
}

asio::awaitable<void> Heartbeats::run() {
  double next_beat = 0;
  while (!stopped_) {
    const double now = steady_seconds();
    // A loss is reported before the heartbeats are sent, so that its frame does not queue after them.
    if (const auto silent = silence_.look(now)) {
      silence_.forget(silent->peer);
      rules_.lost(silent->peer, silent->seconds);
    }
    if (now >= next_beat) {
      next_beat = now + rules_.heartbeat;
      rules_.beat();
    }
    timer_.expires_after(seconds(std::min(next_beat, silence_.next_look()) - now));
    error_code cancelled;
    if (!stopped_) co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
  }
}

}  // namespace gantry::control
