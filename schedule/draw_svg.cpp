#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>

#include "gantry/schedule/drawing.h"
#include "gantry/schedule/measured.h"

namespace gantry::schedule {
namespace {

using Buffer = std::string;

// Pixels.
constexpr double kLeft = 72;
constexpr double kRight = 84;
constexpr double kTop = 64;
constexpr double kCharacter = 6.2;  // width of one label at its font size of 10
constexpr double kMinPlot = 640;
constexpr double kMaxPlot = 1400;

struct Frame {
  double plot = kMinPlot;  // width of the timelines
  double lane = 26;        // height of a lane without the gap
  double gap = 6;
  double extra = 0;       // height of the band below a lane, for extra actions
  double time_scale = 1;  // pixels per unit of time
  double height = 0;      // width of the image

  double x(double time) const { return kLeft + time * time_scale; }
  double y(std::size_t rank) const { return kTop + static_cast<double>(rank) * (lane + gap); }
};

Frame choose_frame(const Simulation& simulation, double end) {
  Frame frame;
  const double shortest = shortest_duration(simulation);
  if (shortest > 0) frame.plot = std::clamp(end / shortest * 28, kMinPlot, kMaxPlot);
  if (end > 0) frame.time_scale = frame.plot / end;
  if (simulation.timeline.size() > 24) frame.lane = 14, frame.gap = 3;
  if (has_extra_lane(simulation)) frame.extra = frame.lane / 3, frame.gap += frame.extra + 2;
  frame.height = frame.y(simulation.timeline.size()) + 76;
  return frame;
}

std::string escape(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

// 1, 2 or 5 times a power of ten, so that there are at most about ten ticks.
double tick_step(double end) {
  const double power = std::pow(10, std::floor(std::log10(end / 10)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (end / (factor * power) <= 10) return factor * power;
  return 10 * power;
}

double width_of(const Frame& frame) { return kLeft + frame.plot + kRight; }

void append_head(Buffer& out, const Frame& frame, const std::string& title, const Simulation& simulation, double top) {
  fmt::format_to(
      std::back_inserter(out),
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" y="{4:.0f}" width="{0:.0f}" height="{1:.0f}" )"
      R"(role="img" font-family="Helvetica, Arial, sans-serif" font-size="11">
<title>{2}</title>
<style>
.F {{ fill: #3f7fd6 }} .B {{ fill: #2f9e62 }} .I {{ fill: #1f9fa8 }} .W {{ fill: #e0913a }}
.UNSHARD {{ fill: #8a5fc0 }} .RESHARD {{ fill: #8a5fc0 }} .REDUCE_GRAD {{ fill: #c0567e }}
.S {{ fill: #7a6fd0 }} .T {{ fill: #a75fb8 }} .IF {{ fill: #8fb3e0 }} .IB {{ fill: #8cc6a6 }}
.light {{ opacity: 0.62 }} .lane {{ fill: #eef0f3 }} .label {{ fill: #fff; font-size: 10px; text-anchor: middle }}
.name {{ fill: #333; text-anchor: end }} .quiet {{ fill: #666 }} .tick {{ stroke: #d5d8dd; stroke-width: 1 }}
.middle {{ text-anchor: middle }} .heading {{ font-size: 15px; font-weight: bold; fill: #222 }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
<text x="16" y="26" class="heading">{2}</text>
<text x="16" y="45" class="quiet">{3}</text>
)",
      width_of(frame), frame.height, escape(title), escape(figures(simulation)), top);
  fmt::format_to(std::back_inserter(out), "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"quiet\">peak held</text>\n",
                 kLeft + frame.plot + 10, kTop - 7);
}

void append_axis(Buffer& out, const Frame& frame, const Simulation& simulation) {
  const double end = last_end(simulation);
  const double bottom = frame.y(simulation.timeline.size());
  if (end <= 0) return;
  const double step = tick_step(end);
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i) {
    const double x = frame.x(i * step);
    fmt::format_to(std::back_inserter(out),
                   "<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" class=\"tick\"/>"
                   "<text x=\"{0:.2f}\" y=\"{3:.1f}\" class=\"quiet middle\">{4}</text>\n",
                   x, kTop - 4, bottom + 2, bottom + 16, number(i * step));
  }
}

// The tone distinguishes the chunks of a rank after the first one.
void append_action(Buffer& out, const Frame& frame, std::size_t rank, const TimedAction& timed, bool with_stage,
                   bool light) {
  const auto& [action, start, end] = timed;
  const double width = (end - start) * frame.time_scale;
  const std::string kind = to_string(action.kind);
  fmt::format_to(std::back_inserter(out),
                 "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" rx=\"{}\" class=\"{}{}\">"
                 "<title>rank {}: {} of stage {}, microbatch {}, {} to {}</title></rect>",
                 frame.x(start), frame.y(rank), std::max(width - 1, 0.5), frame.lane, width > 8 ? 2 : 0, kind,
                 light ? " light" : "", rank, describe(action.kind), action.stage, action.microbatch, number(start),
                 number(end));
  std::string label = with_stage ? to_string(action) : std::to_string(action.microbatch);
  if (static_cast<double>(label.size()) * kCharacter < width - 2 && frame.lane >= 12)
    fmt::format_to(std::back_inserter(out), "<text x=\"{:.2f}\" y=\"{:.1f}\" class=\"label\">{}</text>",
                   frame.x(start) + width / 2 - 0.5, frame.y(rank) + frame.lane / 2 + 3.5, label);
  out += '\n';
}

// Drawn in the band below the rank's lane. Actions that take no time are left out.
void append_extra(Buffer& out, const Frame& frame, std::size_t rank, const TimedAction& timed) {
  const auto& [action, start, end] = timed;
  if (end <= start) return;
  fmt::format_to(std::back_inserter(out),
                 "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" class=\"{}\">"
                 "<title>rank {}: {} of stage {}, {} to {}</title></rect>\n",
                 frame.x(start), frame.y(rank) + frame.lane + 1, std::max((end - start) * frame.time_scale - 1, 0.5),
                 frame.extra, to_string(action.kind), rank, describe(action.kind), action.stage, number(start),
                 number(end));
}

void append_lane(Buffer& out, const Frame& frame, std::size_t rank, const Simulation& simulation, bool with_stage) {
  const auto& lane = simulation.timeline[rank];
  const double middle = frame.y(rank) + frame.lane / 2 + 4;
  fmt::format_to(std::back_inserter(out),
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"name\">rank {}</text>"
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"quiet\">{}</text>\n",
                 kLeft - 10, middle, rank, kLeft + frame.plot + 10, middle, simulation.peak_activations[rank]);
  int first_stage = lane.empty() ? 0 : lane[0].action.stage;
  for (const auto& timed : lane) first_stage = std::min(first_stage, timed.action.stage);
  for (const auto& timed : lane) append_action(out, frame, rank, timed, with_stage, timed.action.stage != first_stage);
  if (frame.extra > 0)
    for (const auto& timed : simulation.extra[rank]) append_extra(out, frame, rank, timed);
}

void append_legend(Buffer& out, const Frame& frame, const Simulation& simulation) {
  double x = kLeft;
  const double y = frame.height - 24;
  for (const auto kind : kinds_drawn(simulation)) {
    fmt::format_to(std::back_inserter(out),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"12\" rx=\"2\" class=\"{}\"/>"
                   "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"quiet\">{}</text>\n",
                   x, y - 10, to_string(kind), x + 20, y, describe(kind));
    x += 34 + kCharacter * static_cast<double>(describe(kind).size());
  }
  fmt::format_to(std::back_inserter(out), "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"quiet\">{}</text>\n", x + 6, y,
                 has_several_stages_a_rank(simulation) ? "stage, kind and microbatch; paler: further chunks of the rank"
                                                       : "numbers are microbatches");
}

// A diagram that begins `top` pixels down in the surrounding image.
std::string picture(const Simulation& simulation, const std::string& title, const Frame& frame, double top) {
  const bool with_stage = has_several_stages_a_rank(simulation);
  Buffer out;
  append_head(out, frame, title, simulation, top);
  for (std::size_t rank = 0; rank < simulation.timeline.size(); ++rank)
    fmt::format_to(std::back_inserter(out),
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"lane\"/>\n", kLeft,
                   frame.y(rank), frame.plot, frame.lane);
  append_axis(out, frame, simulation);
  for (std::size_t rank = 0; rank < simulation.timeline.size(); ++rank)
    append_lane(out, frame, rank, simulation, with_stage);
  append_legend(out, frame, simulation);
  return out + "</svg>\n";
}

}  // namespace

std::string draw_svg(const Simulation& simulation, const std::string& title) {
  return picture(simulation, title, choose_frame(simulation, last_end(simulation)), 0);
}

std::string draw_svg_comparison(const Simulation& measured, const Simulation& simulated, const std::string& title) {
  const double end = std::max(last_end(measured), last_end(simulated));
  const Frame above = choose_frame(measured, end);
  Frame below = choose_frame(simulated, end);
  below.plot = above.plot;
  below.time_scale = above.time_scale;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
             "height=\"{1:.0f}\" role=\"img\">\n",
             width_of(above), above.height + below.height) +
         picture(measured, title + ", measured", above, 0) +
         picture(simulated, title + ", simulated from the measured times", below, above.height) + "</svg>\n";
}

}  // namespace gantry::schedule
