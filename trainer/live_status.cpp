#include "gantry/trainer/live_status.h"

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/trainer/status/status_pages.h"

namespace gantry {

LiveStatus::LiveStatus(const StatusPlace& place, const World& world)
    : has_output_(!world.config().output.empty()),
      reader_(world.config().output),
      address_(status_address(place.host)),
      token_(status_token(address_)),
      server_(
          place.port, address_, [this](const std::string& path) { return reply(path); }, token_.text) {
  numbers_.steps = world.config().train.steps;
  numbers_.layout = world.mesh().describe();
  status_.update(numbers_);
  fmt::print("status: {}{}\n", server_.url(), token_.is_random ? " token " + token_.text : "");
  std::fflush(stdout);
}

StatusReply LiveStatus::reply(const std::string& path) {
  if (!shows_report_ || (path != "/" && path != "/data.json")) return status_reply(status_, path);
  try {
    const nlohmann::json data = reader_.data(/*live=*/true);
    if (path == "/") return {.content_type = "text/html; charset=utf-8", .body = report_page(data)};
    return {.content_type = "application/json",
            .body = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
  } catch (const Error&) {  // its text may name paths
    return {.status = 500, .body = "the run's files cannot be read\n"};
  }
}

void LiveStatus::write(const StepMetrics& metrics) {
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
  numbers_.experts = metrics.experts;
  numbers_.all_to_all_bytes = metrics.all_to_all_bytes;
  numbers_.all_to_all_seconds = metrics.all_to_all_seconds;
  status_.update(numbers_);
}

}  // namespace gantry
