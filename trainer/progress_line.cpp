#include "gantry/trainer/progress_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace gantry {
namespace {

constexpr const char* kLegend =
    "MB: largest peak memory of a rank; % of ideal: computing time of the pipeline's ranks, relative to its schedule "
    "with equal stages (above 100: the ranks waited less than in that schedule)\n";

std::string duration(double seconds) {
  const auto rounded = static_cast<std::int64_t>(std::llround(seconds));
  if (rounded >= 3600) return fmt::format("{}h{:02}m", rounded / 3600, rounded / 60 % 60);
  return rounded >= 60 ? fmt::format("{}m{:02}s", rounded / 60, rounded % 60) : fmt::format("{}s", rounded);
}

// Asked for each line, so that a window that has been resized is known at the next one.
std::size_t columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string ProgressLine::fitted(std::string line, const StepMetrics& metrics, std::size_t columns) {
  if (std::exchange(last_columns_, columns) != columns) bar_width_ = 0;
  if (line.size() > columns) return line.substr(0, columns);
  std::string more;
  if (!metrics.peak_memory_bytes.empty())
    more = fmt::format("  {:.0f} MB", static_cast<double>(*std::max_element(metrics.peak_memory_bytes.begin(),
                                                                            metrics.peak_memory_bytes.end())) /
                                          1e6);
  // The share of computing time, relative to that with equal stages.
  if (metrics.predicted_bubble > 0)
    more += fmt::format("  {:.0f}% of ideal", 100 * (1 - metrics.bubble) / (1 - metrics.predicted_bubble));
  if (line.size() + more.size() <= columns) line += more;
  // Two brackets and two blanks; a first bar leaves room for lines that are longer by a few digits.
  constexpr std::size_t kAround = 4, kLeastBar = 8, kMostBar = 28, kRoom = 6;
  const std::size_t space = columns - line.size();
  if (space < kAround + kLeastBar) return line;
  if (bar_width_ == 0 || bar_width_ > space - kAround)
    bar_width_ = std::clamp(space - kAround - std::min(kRoom, space - kAround - kLeastBar), kLeastBar, kMostBar);
  const auto filled = bar_width_ * static_cast<std::size_t>(metrics.step) / static_cast<std::size_t>(steps_);
  return fmt::format("[{}{}]  {}", std::string(filled, '='), std::string(bar_width_ - filled, ' '), line);
}

ProgressLine::ProgressLine(std::int64_t first_step, std::int64_t steps, int log_every)
    : first_step_(first_step), steps_(steps), log_every_(log_every), terminal_(isatty(STDOUT_FILENO) != 0) {}

void ProgressLine::write(const StepMetrics& metrics) {
  seconds_ += metrics.step_seconds;
  const bool last = metrics.step == steps_, keeps = last || metrics.step % log_every_ == 0;
  if (!terminal_ && !keeps) return;
  const double per_step = seconds_ / static_cast<double>(metrics.step - first_step_ + 1);
  const std::string left = duration(per_step * static_cast<double>(steps_ - metrics.step));
  const std::string line =
      fmt::format("step {:>{}}/{}  loss {:.4f}  grad_norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  {} left", metrics.step,
                  std::to_string(steps_).size(), steps_, metrics.loss, metrics.grad_norm, metrics.lr,
                  static_cast<double>(metrics.tokens) / metrics.step_seconds, left);
  is_open_ = !keeps;
  if (terminal_) {
    const std::string shown = fitted(line, metrics, columns());
    const bool needs_legend = shown.ends_with("ideal") && !std::exchange(has_legend_, true);
    // Erased before, not after: in the last column that would take the last letter with it.
    fmt::print("\r\033[K{}{}{}", needs_legend ? kLegend : "", shown, keeps ? "\n" : "");
  } else {
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

namespace {

// The measure of quality that is printed with the loss.
std::string quality_of(const EvaluationMetrics& metrics) {
  if (metrics.accuracy) return fmt::format("accuracy {:.4f}  f1 {:.4f}", *metrics.accuracy, metrics.f1.value_or(0));
  if (metrics.pearson) return fmt::format("pearson {:.4f}", *metrics.pearson);
  if (!metrics.rewards) return fmt::format("perplexity {:.2f}", std::exp(metrics.loss));
  const RewardMetrics& rewards = *metrics.rewards;
  if (rewards.accuracy) return fmt::format("accuracy {:.4f}", *rewards.accuracy);
  return rewards.margin() ? fmt::format("margin {:.4f}", *rewards.margin()) : "";
}

}  // namespace

void ProgressLine::write(const EvaluationMetrics& metrics) {
  is_open_ = false;
  fmt::print("{}step {:>{}}/{}  eval_loss {:.4f}  {}\n", terminal_ ? "\r\033[K" : "", metrics.step,
             std::to_string(steps_).size(), steps_, metrics.loss, quality_of(metrics));
  if (metrics.choices)
    fmt::print("choices: accuracy {:.4f}  normalised {:.4f}  of {}\n", metrics.choices->accuracy,
               metrics.choices->normalised_accuracy, metrics.choices->questions);
  std::fflush(stdout);
}

void ProgressLine::clear() {
  if (!std::exchange(is_open_, false)) return;
  std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
}

ProgressLine::~ProgressLine() {
  if (!is_open_) return;
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

}  // namespace gantry
