#include "gantry/cli/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace gantry::cli {
namespace {

constexpr std::chrono::milliseconds kInterval{100};
constexpr int kWidth = 30;

}  // namespace

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), is_shown_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (!is_shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

void ProgressBar::show(std::uint64_t done, std::uint64_t all) {
  draw(static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(all, 1)), " of " + readable_bytes(all));
}

void ProgressBar::show_steps(int done, int all) { draw(static_cast<double>(done) / std::max(all, 1), ""); }

void ProgressBar::draw(double share, const std::string& of) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_shown_ || now - last_ < kInterval) return;
  last_ = now;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  fmt::print(stderr, "\r\033[K{} [{}{}] {:3.0f}%{}", label_, std::string(filled, '='),
             std::string(kWidth - std::min<std::size_t>(filled, kWidth), ' '), 100 * share, of);
  std::fflush(stderr);
}

std::function<void(std::uint64_t, std::uint64_t)> ProgressBar::function() {
  if (!is_shown_) return {};
  return [this](std::uint64_t done, std::uint64_t all) { show(done, all); };
}

std::string readable_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace gantry::cli
