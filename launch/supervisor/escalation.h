// How a job that fails is brought to its end: each step harder than the one before.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "gantry/comm/control/asio.h"

namespace gantry::launcher {

class Escalation {
 public:
  struct Step {
    double after;  // seconds from its beginning
    std::function<void()> act;
  };
  static constexpr std::size_t kSteps = 4;

  Escalation(control::asio::io_context& context, std::array<Step, kSteps> steps)
      : context_(context), steps_(std::move(steps)), timer_(context) {}

  void begin();      // once is enough
  void skip_wait();  // its first step is due; begins it
  void stop();
  bool has_begun() const { return begun_.has_value(); }

 private:
  control::asio::awaitable<void> run();

  control::asio::io_context& context_;
  const std::array<Step, kSteps> steps_;  // by time
  control::asio::steady_timer timer_;
  std::optional<double> begun_;  // steady_seconds()
  bool stopped_ = false;
};

}  // namespace gantry::launcher
