#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "gantry/schedule/drawing.h"

namespace gantry::schedule {
namespace {

using Lane = std::vector<TimedAction>;

constexpr int kMaxBands = 3;
constexpr std::size_t kMaxColumnsBeyondLabel = 2;
constexpr char kIdle = '.';

struct Scale {
  double columns_per_time = 0;
  std::size_t columns = 0;  // columns of the full timeline
  std::size_t band = 0;     // columns of one band
  bool labelled = false;

  std::size_t column(double time) const { return static_cast<std::size_t>(std::lround(time * columns_per_time)); }
};

std::size_t longest_label(const Simulation& simulation, bool with_stage) {
  std::size_t longest = 1;
  for (const auto& lane : simulation.timeline)
    for (const auto& timed : lane) longest = std::max(longest, label_of(timed.action, with_stage).size());
  return longest;
}

// As wide as one band allows. Otherwise as narrow as the labels allow in a few bands, or compressed into one band.
Scale choose_scale(const Simulation& simulation, std::size_t band, bool with_stage) {
  const double end = last_end(simulation);
  const double shortest = shortest_duration(simulation);
  if (shortest == 0) return {};
  const double cells = end / shortest;
  // Labels that start with a number need a space between them.
  const std::size_t narrow = longest_label(simulation, with_stage) + (with_stage ? 1 : 0);
  const std::size_t wide = narrow + kMaxColumnsBeyondLabel;
  const auto fitting = static_cast<std::size_t>(static_cast<double>(band) / cells);
  const std::size_t cell = std::clamp(fitting, narrow, wide);
  // A band ends at the next boundary of a cell of the shortest action.
  const std::size_t whole_cells = band - band % cell;
  Scale scale{static_cast<double>(cell) / shortest, 0, whole_cells, true};
  if (cells * static_cast<double>(cell) > static_cast<double>(kMaxBands * whole_cells))
    scale = {static_cast<double>(band) / end, 0, band, false};
  scale.columns = std::max<std::size_t>(1, scale.column(end));
  return scale;
}

std::string paint_labelled(const Lane& lane, const Scale& scale, bool with_stage) {
  std::string line(scale.columns, kIdle);
  for (const auto& [action, start, end] : lane) {
    const std::size_t begin = scale.column(start);
    const std::size_t cell = std::min(scale.column(end), scale.columns) - begin;
    std::string text = label_of(action, with_stage);
    // Rounding may have removed a column: an incomplete number would be misleading.
    if (text.size() > cell) text = to_string(action.kind);
    text.resize(cell, '-');
    line.replace(begin, cell, text);
  }
  return line;
}

// Each column shows the action that runs at its middle.
std::string paint_squeezed(const Lane& lane, const Scale& scale) {
  std::string line(scale.columns, kIdle);
  std::size_t next = 0;
  for (std::size_t column = 0; column < line.size(); ++column) {
    const double middle = (static_cast<double>(column) + 0.5) / scale.columns_per_time;
    while (next < lane.size() && lane[next].end <= middle) ++next;
    if (next < lane.size() && lane[next].start <= middle) line[column] = to_string(lane[next].action.kind)[0];
  }
  return line;
}

std::string legend(const Simulation& simulation, const Scale& scale) {
  std::string text;
  for (const auto kind : kinds_drawn(simulation)) text += to_string(kind) + " " + describe(kind) + ", ";
  text += std::string(1, kIdle) + " idle";
  if (scale.labelled)
    text += has_several_stages_a_rank(simulation) ? "; stage, kind, microbatch" : "; kind, microbatch";
  return text + "; on the right the peak of activations held\n";
}

}  // namespace

std::string draw_text(const Simulation& simulation, int width) {
  const bool with_stage = has_several_stages_a_rank(simulation);
  const std::size_t rank_digits = std::to_string(simulation.timeline.size()).size();
  const std::size_t frame = 5 + rank_digits + 2 + 1 + 5;  // "rank 12 |", "|", and a peak of up to four digits
  const std::size_t band = static_cast<std::size_t>(std::max(width, static_cast<int>(frame) + 20)) - frame;
  const Scale scale = choose_scale(simulation, band, with_stage);
  std::vector<std::string> lines, extra;
  for (const auto& lane : simulation.extra)
    if (has_extra_lane(simulation)) extra.push_back(paint_squeezed(lane, scale));
  for (const auto& lane : simulation.timeline)
    lines.push_back(scale.labelled ? paint_labelled(lane, scale, with_stage) : paint_squeezed(lane, scale));

  std::string text = figures(simulation) + "\n";
  for (std::size_t begin = 0; begin < scale.columns; begin += scale.band) {
    const std::size_t end = std::min(scale.columns, begin + scale.band);
    text += fmt::format("time {} to {}\n", number(static_cast<double>(begin) / scale.columns_per_time),
                        number(std::min(last_end(simulation), static_cast<double>(end) / scale.columns_per_time)));
    for (std::size_t rank = 0; rank < lines.size(); ++rank) {
      text += fmt::format("rank {:>{}} |{}|{}\n", rank, rank_digits, lines[rank].substr(begin, end - begin),
                          end == scale.columns ? fmt::format(" {}", simulation.peak_activations[rank]) : "");
      if (!extra.empty())
        text += fmt::format("{:>{}} |{}|\n", "extra", 5 + rank_digits, extra[rank].substr(begin, end - begin));
    }
  }
  return text + legend(simulation, scale);
}

}  // namespace gantry::schedule
