#include "gantry/trainer/timeline.h"

#include <algorithm>

#include "gantry/core/io/durable_file.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr double kMilliseconds = 1000;  // a second has

}  // namespace

StepTimeline::StepTimeline(Plugin& plugin) : plugin_(plugin) {
  plugin.set_observer([this](const schedule::Action& action, double start, double end) {
    if (!watches_) return;
    if (action.is_compute()) running_.push_back({action, start, end});
    if (listener_) listener_(action, start, end);
  });
}

void StepTimeline::begin(const Boosted& boosted) {
  boosted_.model = boosted.model;
  running_.clear();
  watches_ = true;
}

void StepTimeline::end(std::int64_t replica_samples) {
  samples_ = replica_samples;
  seen_.swap(running_);
  watches_ = false;
}

void StepTimeline::give_up() { watches_ = false; }

double StepTimeline::busy() const {
  double busy = 0;
  for (const auto& timed : seen_) busy += timed.end - timed.start;
  return busy;
}

double StepTimeline::bubble() const {
  ProcessGroup& pipeline = plugin_.mesh()[axis::kPipeline];
  if (pipeline.size() == 1) return 0;
  const double span = seen_.empty() ? 0 : seen_.back().end - seen_.front().start;
  torch::Tensor all = torch::empty({pipeline.size(), 2}, torch::kFloat64);
  pipeline.all_gather(all, torch::tensor({{busy(), span}}, torch::kFloat64), Sizes(pipeline.size(), 1)).wait();
  const double longest = all.select(1, 1).max().item<double>();
  return longest > 0 ? 1 - all.select(1, 0).mean().item<double>() / longest : 0;
}

double StepTimeline::predicted_bubble() {
  if (plugin_.mesh().size(axis::kPipeline) == 1 || samples_ == 0) return 0;
  const auto [found, is_new] = predicted_.try_emplace(samples_);
  if (is_new) found->second = schedule::simulate(plugin_.schedule_for(boosted_, samples_, false)).bubble_rate;
  return found->second;
}

// Every rank knows which actions the others ran, in which order: times alone travel.
schedule::Timeline StepTimeline::gather(const schedule::Schedule& made) const {
  ProcessGroup& pipeline = plugin_.mesh()[axis::kPipeline];
  Sizes sizes;
  std::int64_t total = 0;
  schedule::Timeline rows(pipeline.size());
  for (int rank = 0; rank < pipeline.size(); ++rank) {
    for (const auto& action : made.actions[rank])
      if (action.is_compute()) rows[rank].push_back({action, 0, 0});
    sizes.push_back(static_cast<std::int64_t>(rows[rank].size()));
    total += sizes.back();
  }
  torch::Tensor mine = torch::zeros({sizes[pipeline.rank()], 2}, torch::kFloat64);
  for (std::size_t i = 0; i < seen_.size() && static_cast<std::int64_t>(i) < mine.size(0); ++i) {
    mine.data_ptr<double>()[2 * i] = seen_[i].start;
    mine.data_ptr<double>()[2 * i + 1] = seen_[i].end;
  }
  torch::Tensor all = torch::empty({total, 2}, torch::kFloat64);
  pipeline.all_gather(all, mine, sizes).wait();
  const double first = total > 0 ? all.min().item<double>() : 0;
  const double* times = all.data_ptr<double>();
  for (auto& row : rows)
    for (auto& timed : row) {
      timed.start = *times++ - first;
      timed.end = *times++ - first;
    }
  return rows;
}

schedule::ForwardTimes StepTimeline::gather_forwards(int layers) const {
  schedule::ForwardTimes times = plugin_.forward_times();
  times.layers.resize(layers, 0);
  std::vector<double> numbers = times.layers;
  numbers.insert(numbers.end(), {times.before, times.after});
  torch::Tensor all = torch::tensor(numbers, torch::kFloat64);
  plugin_.mesh()[axis::kPipeline].all_reduce(all).wait();
  const double* sums = all.const_data_ptr<double>();
  return {{sums, sums + layers}, sums[layers], sums[layers + 1]};
}

std::optional<StepPictures> StepTimeline::pictures(const std::vector<LayerRange>& ranges) const {
  if (samples_ == 0) return std::nullopt;
  const auto made = plugin_.schedule_for(boosted_, samples_, false);
  schedule::Timeline timeline = gather(made);
  for (auto& lane : timeline)
    for (auto& timed : lane) timed.start *= kMilliseconds, timed.end *= kMilliseconds;
  const schedule::Costs costs = schedule::costs_of(timeline, made.stages());
  return StepPictures{schedule::figures_of(timeline, made), schedule::simulate(made, costs),
                      schedule::work_of(costs, ranges, gather_forwards(ranges.empty() ? 0 : ranges.back().end))};
}

void write_pictures(const StepPictures& pictures, const std::string& output) {
  const auto& [measured, simulated, layers] = pictures;
  write_text_durably(output + "/timeline.svg",
                     schedule::draw_svg_comparison(measured, simulated, "The last step in milliseconds"));
  write_text_durably(output + "/trace.json", schedule::draw_chrome_trace_comparison(measured, simulated));
}

}  // namespace gantry
