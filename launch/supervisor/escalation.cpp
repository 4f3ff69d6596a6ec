#include "gantry/launch/supervisor/escalation.h"

#include <algorithm>

#include "gantry/core/base/steady_seconds.h"

namespace gantry::launcher {

using namespace control;

void Escalation::begin() {
  if (begun_) return;
  begun_ = steady_seconds();
  spawn(context_, run());
}

void Escalation::skip_wait() {
  begin();
  begun_ = std::min(*begun_, steady_seconds() - steps_.front().after);
  timer_.cancel();
}

void Escalation::stop() {
  stopped_ = true;
  timer_.cancel();
}

asio::awaitable<void> Escalation::run() {
  for (const Step& step : steps_) {
    for (double left; !stopped_ && (left = *begun_ + step.after - steady_seconds()) > 0;) {
      timer_.expires_after(seconds(left));
      error_code cancelled;
      co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    }
    if (stopped_) co_return;
    step.act();
  }
}

}  // namespace gantry::launcher
