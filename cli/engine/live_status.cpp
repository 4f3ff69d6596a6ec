#include "gantry/cli/engine/live_status.h"

#include <cstdio>
#include <fmt/format.h>

#include "gantry/comm/control/addresses.h"
#include "gantry/comm/control/status_pages.h"

namespace gantry::cli {

LiveStatus::LiveStatus(int port, const World& world)
    : has_output_(!world.config().output.empty()),
      reader_(world.config().output),
      server_(port, control_address(world.config().comm.interface, /*one_host=*/true),
              [this](const std::string& path) { return reply(path); }) {
  numbers_.steps = world.config().train.steps;
  numbers_.layout = world.mesh().describe();
  status_.update(numbers_);
  fmt::print("status: {}\n", server_.url());
  std::fflush(stdout);
}

StatusReply LiveStatus::reply(const std::string& path) {
  if (shows_report_ && path == "/")
    return {.content_type = "text/html; charset=utf-8", .body = report_page(reader_.data(/*live=*/true))};
  if (shows_report_ && path == "/data.json")
    return {.content_type = "application/json",
            .body = reader_.data(true).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  return status_reply(status_, path);
}

void LiveStatus::update(const StepMetrics& metrics) {
  numbers_.step = metrics.step;
  numbers_.loss = metrics.loss;
  numbers_.grad_norm = metrics.grad_norm;
  numbers_.lr = metrics.lr;
  numbers_.tokens = metrics.tokens;
  numbers_.total_tokens += metrics.tokens;
  numbers_.step_seconds = metrics.step_seconds;
  numbers_.bubble = metrics.bubble;
  numbers_.predicted_bubble = metrics.predicted_bubble;
  numbers_.peak_memory_bytes = metrics.peak_memory_bytes;
  status_.update(numbers_);
}

}  // namespace gantry::cli
