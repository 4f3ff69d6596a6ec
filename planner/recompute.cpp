#include "gantry/planner/recompute.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "gantry/core/config/byte_size.h"
#include "gantry/core/error.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/config.h"
#include "gantry/planner/tower.h"
#include "gantry/planner/workload.h"
#include "gantry/schedule/configured_schedule.h"
#include "gantry/schedule/pipeline_stage_manager.h"
#include "gantry/schedule/stages/layers_per_stage.h"

namespace gantry::planner {
namespace {

// kPass overlaps with the core, which is counted.
double flops_of(const std::vector<Operation>& operations) {
  double flops = 0;
  for (const Operation& operation : operations)
    if (operation.kind != Operation::Kind::kPass) flops += operation.flops;
  return flops;
}

double flops_again(const PartOperations& part, Recompute how) {
  const auto* again = computed_again(part, how);
  return again ? flops_of(*again) : 0;
}

void add_part(schedule::StageCosts& stage, const PartOperations& part, Recompute how) {
  stage.forward += flops_of(part.forward);
  stage.input_gradient += flops_of(part.input_gradient) + flops_again(part, how);
  stage.weight_gradient += flops_of(part.weight_gradient);
  stage.activation += kept_with(part, how);
  stage.weight_input += part.kept - part.kept_core;
}

}  // namespace

RecomputeCosts::RecomputeCosts(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                               std::vector<int> layers)
    : workload_(workload),
      layout_(layout),
      schedule_(schedule),
      layers_(std::move(layers)),
      embedding_(embedding_operations(workload, layout)),
      head_(head_operations(workload, layout)),
      embedding_stage_(embedding_stage(workload.model, layers_)) {
  for (int layer = 0; layer < pipeline_layers(workload.model); ++layer)
    parts_.push_back(repeats_layer(workload.model, layer) ? parts_.back() : layer_operations(workload, layer, layout));
  if (workload.model.vision) {
    patches_ = patch_operations(workload, layout);
    features_ = feature_operations(workload, layout);
  }
  held_ = held_by_stages(workload, layout, schedule.stages_of_rank, layers_);
  held_.microbatches = schedule.microbatches;
  held_.teacher = teacher_memory(workload, layout, schedule.stages_of_rank);
  int next = 0;
  for (const int count : layers_) first_layer_.push_back(std::exchange(next, next + count));
}

schedule::StageCosts RecomputeCosts::stage_costs(int stage, Recompute how, int count) const {
  schedule::StageCosts costs{
      .forward = 0, .input_gradient = 0, .weight_gradient = 0, .activation = 0, .weight_input = 0};
  for (int i = 0; i < layers_[stage]; ++i)
    add_part(costs, parts_[first_layer_[stage] + i], i < count ? how : Recompute::kNone);
  if (stage == 0) add_part(costs, patches_, Recompute::kNone);
  if (stage == embedding_stage_) add_part(costs, features_, Recompute::kNone);
  if (stage == embedding_stage_) add_part(costs, embedding_, Recompute::kNone);
  if (stage + 1 == stages()) add_part(costs, head_, Recompute::kNone);
  return costs;
}

double RecomputeCosts::working(int stage, Recompute how, int count) const {
  double most = 0;
  for (int i = 0; i < layers_[stage]; ++i) {
    const PartOperations& part = parts_[first_layer_[stage] + i];
    most = std::max(most, made_again(part, i < count ? how : Recompute::kNone) + part.working);
  }
  if (stage == 0) most = std::max(most, patches_.working);
  if (stage == embedding_stage_) most = std::max({most, features_.working, embedding_.working});
  // The bytes that the head keeps are released before the backwards of the layers.
  return stage + 1 == stages() ? std::max(most - head_.kept, head_.working) : most;
}

// The peak that the simulator finds, from the actions of the rank: it runs one action at a time.
double RecomputeCosts::peak(int rank, Recompute how, const std::vector<int>& counts) const {
  std::vector<schedule::StageCosts> costs(stages());
  for (const int stage : stages_of(rank)) costs[stage] = stage_costs(stage, how, counts[stage]);
  double held = 0, most = 0;
  for (const schedule::Action& action : schedule_.actions[rank]) {
    const schedule::StageCosts& of = costs[action.stage];
    if (action.kind == schedule::ActionKind::kForward) held += of.activation;
    if (action.kind == schedule::ActionKind::kBackward) held -= of.activation;
    if (action.kind == schedule::ActionKind::kInputGradient) held += of.weight_input - of.activation;
    if (action.kind == schedule::ActionKind::kWeightGradient) held -= of.weight_input;
    most = std::max(most, held);
  }
  return most;
}

Memory RecomputeCosts::memory(int rank, Recompute how, const std::vector<int>& counts) const {
  LayoutCosts held = held_;
  for (const int stage : stages_of(rank)) held.stages[stage].working = working(stage, how, counts[stage]);
  return rank_memory(workload_, layout_, held, rank, peak(rank, how, counts));
}

schedule::Costs RecomputeCosts::costs(Recompute how, const std::vector<int>& counts) const {
  schedule::Costs all;
  for (int stage = 0; stage < stages(); ++stage) all.stages.push_back(stage_costs(stage, how, counts[stage]));
  return all;
}

double RecomputeCosts::makespan(Recompute how, const std::vector<int>& counts) const {
  return schedule::simulate(schedule_, costs(how, counts)).makespan_global;
}

namespace {

using Counts = std::vector<int>;

constexpr std::size_t kMostVectors = 4096;      // choices of a rank that are tried
constexpr std::size_t kMostCombinations = 256;  // combinations of ranks that are all simulated

// Calls with every choice of an index below each size, the first running fastest.
void for_each_combination(const std::vector<int>& sizes, const std::function<void(const Counts&)>& take) {
  Counts now(sizes.size(), 0);
  for (;;) {
    take(now);
    std::size_t place = 0;
    while (place < now.size() && ++now[place] == sizes[place]) now[place++] = 0;
    if (place == now.size()) return;
  }
}

// All choices up to `most` if there are at most kMostVectors; otherwise those that fill one stage after the other, from
// either end.
std::vector<Counts> vectors_up_to(const Counts& most) {
  std::vector<Counts> vectors;
  double all = 1;
  std::vector<int> sizes;
  for (const int each : most) all *= sizes.emplace_back(each + 1);
  if (all <= static_cast<double>(kMostVectors)) {
    for_each_combination(sizes, [&](const Counts& vector) { vectors.push_back(vector); });
  } else {
    for (const bool backwards : {false, true}) {
      Counts vector(most.size(), 0);
      vectors.push_back(vector);
      for (std::size_t i = 0; i < most.size(); ++i) {
        const std::size_t stage = backwards ? most.size() - 1 - i : i;
        while (vector[stage] < most[stage]) ++vector[stage], vectors.push_back(vector);
      }
    }
  }
  std::ranges::stable_sort(vectors, {},
                           [](const Counts& vector) { return std::accumulate(vector.begin(), vector.end(), 0); });
  return vectors;
}

bool is_at_most(const Counts& one, const Counts& other) {
  return std::equal(one.begin(), one.end(), other.begin(), std::less_equal<>());
}

// The minimal choices of each rank, and their fastest combination.
class RecomputeSearch {
 public:
  RecomputeSearch(const RecomputeCosts& costs, std::int64_t limit, Recompute how)
      : costs_(costs), limit_(static_cast<double>(limit)), how_(how), counts_(costs.stages(), 0) {}

  // False if a rank does not fit with any choice: tightest() then returns the rank that needs most, and its memory.
  bool run() {
    bool fits = true;
    for (int rank = 0; rank < costs_.ranks(); ++rank) fits = find_least(rank) && fits;
    if (fits) combine();
    return fits;
  }

  const Counts& counts() const { return counts_; }
  double makespan() const { return makespan_; }
  std::pair<int, Memory> tightest() const { return {tightest_, needed_}; }

 private:
  // Collects the minimal choices of a rank that fit.
  bool find_least(int rank) {
    const std::vector<int>& stages = costs_.stages_of(rank);
    Counts most;
    for (const int stage : stages) most.push_back(costs_.layers_of(stage));
    std::vector<Counts>& least = least_.emplace_back();
    std::optional<Memory> smallest;
    for (const Counts& vector : vectors_up_to(most)) {
      if (std::ranges::any_of(least, [&](const Counts& known) { return is_at_most(known, vector); })) continue;
      Counts counts(counts_.size(), 0);
      for (std::size_t i = 0; i < stages.size(); ++i) counts[stages[i]] = vector[i];
      const Memory memory = costs_.memory(rank, how_, counts);
      if (!smallest || memory.sum() < smallest->sum()) smallest = memory;
      if (memory.sum() <= limit_) least.push_back(vector);
    }
    if (least.empty() && smallest->sum() > needed_.sum()) tightest_ = rank, needed_ = *smallest;
    return !least.empty();
  }

  void take(int rank, int choice) {
    const std::vector<int>& stages = costs_.stages_of(rank);
    for (std::size_t i = 0; i < stages.size(); ++i) counts_[stages[i]] = least_[rank][choice][i];
  }

  void combine() {
    std::vector<int> sizes;
    double all = 1;
    for (const auto& least : least_) all *= sizes.emplace_back(static_cast<int>(least.size()));
    Counts best(sizes.size(), 0);
    const auto try_all = [&](const Counts& choices) {
      for (int rank = 0; rank < costs_.ranks(); ++rank) take(rank, choices[rank]);
      const double made = costs_.makespan(how_, counts_);
      if (made < makespan_) makespan_ = made, best = choices;
    };
    if (all <= static_cast<double>(kMostCombinations)) {
      for_each_combination(sizes, try_all);
    } else {
      try_all(best);
      for (double before = 0; makespan_ != before;) {
        before = makespan_;
        for (std::size_t rank = 0; rank < sizes.size(); ++rank)
          for (int choice = 0; choice < sizes[rank]; ++choice) {
            Counts changed = best;
            changed[rank] = choice;
            try_all(changed);
          }
      }
    }
    for (int rank = 0; rank < costs_.ranks(); ++rank) take(rank, best[rank]);
  }

  const RecomputeCosts& costs_;
  double limit_;
  Recompute how_;
  Counts counts_;                           // one for each stage
  std::vector<std::vector<Counts>> least_;  // for each rank, of its stages
  double makespan_ = std::numeric_limits<double>::infinity();
  int tightest_ = 0;
  Memory needed_;
};

[[noreturn]] void refuse_limit(std::int64_t limit, int rank, const Memory& needed) {
  const bool is_large = needed.sum() > static_cast<double>(1 << 30) / 10;
  const double unit = is_large ? 1 << 30 : 1 << 20;
  const char* name = is_large ? "GiB" : "MiB";
  throw ConfigError(
      {"schedule.memory_limit",
       fmt::format(
           "{} is too small: rank {} of the pipeline needs {:.3f} {} with any recomputation: parameters {:.3f} + "
           "gradients {:.3f} + optimizer {:.3f} + activations {:.3f} + working {:.3f}{}",
           byte_size_text(limit), rank, needed.sum() / unit, name, needed.parameters / unit, needed.gradients / unit,
           needed.optimizer / unit, needed.activations / unit, needed.working / unit,
           needed.teacher > 0 ? fmt::format(" + teacher {:.3f}", needed.teacher / unit) : ""),
       fmt::format("at least {:.3f} {}", std::ceil(1000 * needed.sum() / unit) / 1000, name),
       "raise the limit, lower schedule.microbatch_size, or raise parallel.tensor, pipeline or zero"});
}

[[noreturn]] void refuse_auto(const std::string& why, const std::string& expected) {
  throw ConfigError(
      {"schedule.recompute", "auto is not possible, because " + why, expected, "set schedule.recompute to a mode"});
}

models::DecoderSpec known_model(const Config& config) {
  const auto keys = models::keys_of_model(config.model);
  if (const auto spec = models::described_decoder(keys, config.model.policy)) return *spec;
  refuse_auto("the memory of this model's layers is not known", "a model of a built-in decoder family");
}

void refuse_unknown_memory(const Config& config) {
  if (config.data.format.empty())
    refuse_auto("there is no data section", "a data section with sequence_length and batch_size");
  if (config.lora.is_on()) refuse_auto("the configuration trains adapters", "a configuration without lora");
  if (config.parallel.zero == 3) refuse_auto("parallel.zero is 3", "parallel.zero 0 to 2");
  if (config.parallel.vocabulary != "stages" && config.parallel.pipeline > 1)
    refuse_auto("parallel.vocabulary is " + config.parallel.vocabulary, "parallel.vocabulary: stages");
  if (config.train.offload != "none") refuse_auto("train.offload is " + config.train.offload, "train.offload: none");
}

std::vector<int> ranks_of_stages(const std::vector<std::vector<int>>& stages_of_rank) {
  const PipelineStageManager manager(0, stages_of_rank);
  std::vector<int> ranks;
  for (int stage = 0; stage < manager.num_stages(); ++stage) ranks.push_back(manager.rank_of(stage));
  return ranks;
}

}  // namespace

int RecomputeChoice::recomputed() const { return std::accumulate(layers.begin(), layers.end(), 0); }

RecomputeChoice choose_recompute(const Workload& workload, const Layout& layout, const schedule::Schedule& schedule,
                                 const std::vector<int>& layers, std::int64_t limit,
                                 const std::vector<Recompute>& hows) {
  const RecomputeCosts costs(workload, layout, schedule, layers);
  const Counts none(layers.size(), 0);
  RecomputeChoice choice;
  double soonest = std::numeric_limits<double>::infinity();
  std::optional<std::pair<int, Memory>> tightest;
  for (const Recompute how : hows) {
    RecomputeSearch search(costs, limit, how);
    if (!search.run()) {
      if (!tightest || search.tightest().second.sum() < tightest->second.sum()) tightest = search.tightest();
    } else if (search.makespan() < soonest) {
      soonest = search.makespan();
      choice.how = how;
      choice.layers = search.counts();
    }
  }
  if (choice.layers.empty()) refuse_limit(limit, tightest->first, tightest->second);
  if (choice.layers == none) choice.how = Recompute::kNone;
  choice.longer = soonest / costs.makespan(Recompute::kNone, none) - 1;
  for (int rank = 0; rank < costs.ranks(); ++rank)
    choice.memory.push_back(costs.memory(rank, choice.how, choice.layers));
  if (choice.how == Recompute::kNone) choice.layers.clear();
  return choice;
}

std::optional<RecomputeChoice> chosen_recompute(const Config& given, int data) {
  if (given.schedule.recompute != "auto") return std::nullopt;
  refuse_unknown_memory(given);
  Config config = given;
  config.parallel.data = data;
  const models::DecoderSpec spec = known_model(config);
  const ScheduleSource source(config.schedule, config.parallel.pipeline);
  const std::vector<int> rank_of_stage = ranks_of_stages(source.stages_of_rank());
  const int stages = static_cast<int>(rank_of_stage.size());
  const std::vector<int> layers = layers_per_stage(config.schedule, models::layer_work_of(spec), rank_of_stage);
  layer_ranges(layers, pipeline_layers(spec), stages);  // throws if their sum is wrong
  const std::int64_t samples = (config.data.batch_size + data - 1) / data;
  const int microbatches = source.microbatches(stages, samples);
  Layout layout = stated_layout(config);
  layout.microbatch = static_cast<int>((samples + microbatches - 1) / microbatches);
  layout.microbatches = microbatches;
  std::vector<Recompute> hows = {Recompute::kSelective, Recompute::kFull};
  // Router losses do not support kParts (see HybridParallelPlugin).
  if (config.experts.balance == "none" && config.experts.z_loss == 0) hows.insert(hows.begin() + 1, Recompute::kParts);
  return choose_recompute(stated_workload(config), layout, source.make(microbatches), layers,
                          config.schedule.memory_limit, hows);
}

void apply(const RecomputeChoice& choice, ScheduleConfig& schedule) {
  schedule.recompute = name_of(choice.how);
  schedule.recompute_layers = choice.layers;
}

}  // namespace gantry::planner
