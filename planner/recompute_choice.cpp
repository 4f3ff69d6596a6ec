#include "gantry/planner/recompute_choice.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gantry/core/byte_size.h"
#include "gantry/core/error.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/core/schedule_choice.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/configured.h"
#include "gantry/planner/recompute_costs.h"
#include "gantry/planner/stated_layout.h"
#include "gantry/schedule/configured_schedule.h"

namespace gantry::planner {
namespace {

using Counts = std::vector<int>;

constexpr std::size_t kMostVectors = 4096;      // of a rank's stages
constexpr std::size_t kMostCombinations = 256;  // of ranks, that are all simulated

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

// At most kMostVectors: else those that take one stage after the other, from either end.
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

class Search {
 public:
  Search(const RecomputeCosts& costs, std::int64_t limit, Recompute how)
      : costs_(costs), limit_(static_cast<double>(limit)), how_(how), counts_(costs.stages(), 0) {}

  // False where a rank does not fit, whatever is computed again: then tightest() says which needs most, and how much.
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
  // What fits of a rank and is no more than anything else that does.
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
  Counts counts_;                           // by stage
  std::vector<std::vector<Counts>> least_;  // by rank, of its stages
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
       fmt::format("{}, and rank {} of the pipeline needs {:.3f} {} whatever it computes again: parameters {:.3f} + "
                   "gradients {:.3f} + optimizer {:.3f} + activations {:.3f} + working {:.3f}",
                   byte_size_text(limit), rank, needed.sum() / unit, name, needed.parameters / unit,
                   needed.gradients / unit, needed.optimizer / unit, needed.activations / unit, needed.working / unit),
       fmt::format("at least {:.3f} {}", std::ceil(1000 * needed.sum() / unit) / 1000, name),
       "raise it, lower schedule.microbatch_size, or cut more by parallel.tensor, pipeline or zero"});
}

[[noreturn]] void refuse_auto(const std::string& what, const std::string& expected) {
  throw ConfigError({"schedule.recompute", "is auto, and " + what, expected, "state which layers are recomputed"});
}

models::DecoderSpec known_model(const Config& config) {
  const auto keys = models::keys_of_model(config.model);
  if (const auto spec = models::described_decoder(keys, config.model.policy)) return *spec;
  refuse_auto("the memory of this model's layers is not known", "a described decoder in `model`");
}

void refuse_unknown_memory(const Config& config) {
  if (config.data.format.empty()) refuse_auto("there is no data section", "data.sequence_length and data.batch_size");
  if (config.lora.is_on()) refuse_auto("adapters are trained", "it without lora");
  if (config.parallel.zero == 3) refuse_auto("parallel.zero is 3", "zero 0 to 2");
  if (config.parallel.vocabulary != "stages" && config.parallel.pipeline > 1)
    refuse_auto("parallel.vocabulary is " + config.parallel.vocabulary, "stages");
  if (config.train.offload != "none") refuse_auto("train.offload is " + config.train.offload, "none");
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
    Search search(costs, limit, how);
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
  layer_ranges(layers, static_cast<int>(spec.layers.size()), stages);  // which says where they don't add up
  const std::int64_t samples = (config.data.batch_size + data - 1) / data;
  const int microbatches = source.microbatches(stages, samples);
  Layout layout = stated_layout(config);
  layout.microbatch = static_cast<int>((samples + microbatches - 1) / microbatches);
  layout.microbatches = microbatches;
  std::vector<Recompute> hows = {Recompute::kSelective, Recompute::kFull};
  // Losses of routers are not for parts (HybridParallelPlugin says why).
  if (config.experts.balance == "none" && config.experts.z_loss == 0) hows.insert(hows.begin() + 1, Recompute::kParts);
  return choose_recompute(stated_workload(config), layout, source.make(microbatches), layers,
                          config.schedule.memory_limit, hows);
}

void apply(const RecomputeChoice& choice, ScheduleConfig& schedule) {
  schedule.recompute = name_of(choice.how);
  schedule.recompute_layers = choice.layers;
}

}  // namespace gantry::planner
