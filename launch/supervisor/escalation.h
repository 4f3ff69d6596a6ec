// The steps that end a failed job, each one harder than the one before.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "gantry/comm/control/asio.h"

namespace gantry::launcher {

class Escalation {
 public:
  struct Step {
    double after;  // seconds since begin()
    std::function<void()> act;
  };
  static constexpr std::size_t kSteps = 4;

  Escalation(control::asio::io_context& context, std::array<Step, kSteps> steps)
      : context_(context), steps_(std::move(steps)), timer_(context) {}

  void begin();      // further calls have no effect
  void skip_wait();  // runs the first step now; begins if it has not
  void stop();
  bool has_begun() const { return begun_.has_value(); }

 private:
  control::asio::awaitable<void> run();

  control::asio::io_context& context_;
  const std::array<Step, kSteps> steps_;  // in order of time
  control::asio::steady_timer timer_;
  std::optional<double> begun_;  // steady_seconds()
  bool stopped_ = false;
};

}  // namespace gantry::launcher
