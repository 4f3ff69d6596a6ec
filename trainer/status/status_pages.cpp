#include "gantry/trainer/status/status_pages.h"

#include <cmath>
#include <fmt/format.h>

#include "gantry/core/version.h"

namespace gantry {
namespace {

// Returns the number with all its digits, and OpenMetrics' names for NaN and infinities.
std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Returns a metric family with one sample. OpenMetrics requires that the family's name ends with the unit.
std::string gauge(const std::string& name, const std::string& unit, const std::string& help, double value) {
  std::string text = fmt::format("# TYPE {} gauge\n", name);
  if (!unit.empty()) text += fmt::format("# UNIT {} {}\n", name, unit);
  return text + fmt::format("# HELP {} {}\n{} {}\n", name, help, name, number_text(value));
}

std::string expert_metrics(const RunNumbers& numbers) {
  const auto& layers = numbers.experts.layers;
  if (layers.empty()) return "";
  std::string text =
      gauge("gantry_dropped_choices", "", "Choices of experts by tokens of the last step that no expert computed.",
            static_cast<double>(numbers.experts.dropped)) +
      gauge("gantry_all_to_all_bytes", "bytes", "Bytes that a rank sends to experts and back in the last step.",
            numbers.all_to_all_bytes) +
      gauge("gantry_all_to_all_seconds", "seconds", "Time of a rank for this exchange, including waits.",
            numbers.all_to_all_seconds);
  text += "# TYPE gantry_expert_load_ratio gauge\n# UNIT gantry_expert_load_ratio ratio\n";
  text += "# HELP gantry_expert_load_ratio Tokens of a router's most used expert, divided by the mean.\n";
  for (const auto& load : layers)
    text += fmt::format("gantry_expert_load_ratio{{router=\"{}\"}} {}\n", load.router,
                        number_text(load.largest_over_mean()));
  text += "# TYPE gantry_expert_tokens gauge\n# HELP gantry_expert_tokens Tokens routed to an expert.\n";
  for (const auto& load : layers)
    for (std::size_t expert = 0; expert < load.tokens.size(); ++expert)
      text += fmt::format("gantry_expert_tokens{{router=\"{}\",expert=\"{}\"}} {}\n", load.router, expert,
                          load.tokens[expert]);
  return text;
}

std::string step_metrics(const RunNumbers& numbers) {
  std::string text =
      gauge("gantry_loss", "", "Mean loss of the last step.", numbers.loss) +
      gauge("gantry_gradient_norm", "", "Gradient norm of the last step before clipping.", numbers.grad_norm) +
      gauge("gantry_learning_rate", "", "Learning rate of the last step.", numbers.lr) +
      gauge("gantry_tokens_per_second", "", "Tokens per second in the last step.", numbers.tokens_per_second()) +
      gauge("gantry_step_seconds", "seconds", "Duration of the last step.", numbers.step_seconds) +
      gauge("gantry_bubble_ratio", "ratio", "Idle share of the pipeline's time in the last step.", numbers.bubble) +
      gauge("gantry_predicted_bubble_ratio", "ratio", "Simulated idle share of the pipeline's time.",
            numbers.predicted_bubble);
  text += "# TYPE gantry_tokens counter\n# HELP gantry_tokens Tokens counted since the program started.\n";
  text += fmt::format("gantry_tokens_total {}\n", numbers.total_tokens);
  text += expert_metrics(numbers);
  if (numbers.peak_memory_bytes.empty()) return text;
  text += "# TYPE gantry_peak_memory_bytes gauge\n# UNIT gantry_peak_memory_bytes bytes\n";
  text += "# HELP gantry_peak_memory_bytes Peak memory of tensors so far, by rank.\n";
  for (std::size_t rank = 0; rank < numbers.peak_memory_bytes.size(); ++rank)
    text += fmt::format("gantry_peak_memory_bytes{{rank=\"{}\"}} {}\n", rank, numbers.peak_memory_bytes[rank]);
  return text;
}

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, value);
}

std::string step_rows(const RunNumbers& numbers) {
  std::string rows = row("Loss", fmt::format("{:.5f}", numbers.loss)) +
                     row("Gradient norm", fmt::format("{:.4f}", numbers.grad_norm)) +
                     row("Learning rate", fmt::format("{:.3e}", numbers.lr)) +
                     row("Tokens per second", fmt::format("{:.0f}", numbers.tokens_per_second())) +
                     row("Seconds per step", fmt::format("{:.3f}", numbers.step_seconds)) +
                     row("Idle pipeline time", fmt::format("{:.1f}% (simulated {:.1f}%)", 100 * numbers.bubble,
                                                           100 * numbers.predicted_bubble));
  for (std::size_t rank = 0; rank < numbers.peak_memory_bytes.size(); ++rank)
    rows += row(fmt::format("Peak memory, rank {}", rank),
                fmt::format("{:.1f} MB", static_cast<double>(numbers.peak_memory_bytes[rank]) / 1e6));
  return rows;
}

constexpr const char* kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="2"><title>Gantry</title><style>
:root { color-scheme: dark; }
body { background: #14171c; color: #d7dce3; font: 16px/1.5 system-ui, sans-serif; margin: 3rem auto; max-width: 40rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; font-weight: 600; margin: 0; }
p { color: #8b95a5; margin: .2rem 0 1.5rem; }
progress { width: 100%; height: .5rem; accent-color: #5aa9e6; }
table { border-collapse: collapse; width: 100%; margin-top: 1.5rem; }
th { text-align: left; font-weight: 400; color: #8b95a5; }
td { text-align: right; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #262c36; padding: .45rem 0; }
a { color: #5aa9e6; }
</style></head><body>
)";

}  // namespace

std::string open_metrics(const RunNumbers& numbers) {
  return fmt::format(
             "# TYPE gantry_run info\n# HELP gantry_run The training program.\ngantry_run_info{{version=\"{}\"}} "
             "1\n",
             GANTRY_VERSION) +
         gauge("gantry_step", "", "Completed training steps.", static_cast<double>(numbers.step)) +
         gauge("gantry_steps", "", "Training steps of the full run.", static_cast<double>(numbers.steps)) +
         (numbers.step > 0 ? step_metrics(numbers) : "") + "# EOF\n";
}

std::string status_page(const RunNumbers& numbers) {
  return fmt::format(
      "{}<h1>Step {} of {}</h1>\n<p>{}</p>\n<progress value=\"{}\" max=\"{}\"></progress>\n<table>\n{}</table>\n"
      "<p>For monitoring: <a href=\"/metrics\">/metrics</a></p>\n</body></html>\n",
      kPageHead, numbers.step, numbers.steps, numbers.layout, numbers.step, std::max<std::int64_t>(numbers.steps, 1),
      numbers.step > 0 ? step_rows(numbers) : row("The first step", "in progress"));
}

StatusReply status_reply(const RunStatus& status, const std::string& path) {
  if (path == "/") return {.content_type = "text/html; charset=utf-8", .body = status_page(status.latest())};
  if (path == "/metrics") return {.content_type = kOpenMetricsType, .body = open_metrics(status.latest())};
  return not_found();
}

}  // namespace gantry
