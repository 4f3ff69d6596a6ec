#include "gantry/planner/candidates.h"

#include <algorithm>
#include <optional>

#include "gantry/core/schedule_names.h"
#include "gantry/core/zero_level.h"
#include "gantry/planner/search.h"

namespace gantry::planner {
namespace {

std::vector<int> divisors(int number, int most) {
  std::vector<int> all;
  for (int each = 1; each <= std::min(number, most); ++each)
    if (number % each == 0) all.push_back(each);
  return all;
}

// Goes through the keys one after the other; what is stated has one value.
class Visit {
 public:
  Visit(const PlanRequest& request, const Cluster& cluster, const std::function<void(const Layout&)>& visit)
      : request_(request), cluster_(cluster), visit_(visit), layout_(request.stated) {}

  void run() {
    std::int64_t heads = layout_.tensor;
    for (const auto& layer : request_.workload.model.layers) heads = std::max(heads, layer.attention.heads);
    const int most = static_cast<int>(std::min<std::int64_t>(heads, cluster_.per_host));
    for (const int tensor : choices("parallel.tensor", layout_.tensor, divisors(cluster_.per_host, most))) {
      if (cluster_.ranks() % tensor != 0) continue;
      layout_.tensor = tensor;
      layout_.sequence_parallel =
          is_open("parallel.sequence_parallel") ? tensor > 1 : request_.stated.sequence_parallel;
      pipelines();
    }
  }

 private:
  bool is_open(const std::string& key) const { return request_.open.contains(key); }
  template <class Value>
  std::vector<Value> choices(const std::string& key, const Value& stated, std::vector<Value> open) const {
    return is_open(key) ? std::move(open) : std::vector<Value>{stated};
  }

  void pipelines() {
    const int rest = cluster_.ranks() / layout_.tensor;
    const int layers = static_cast<int>(request_.workload.model.layers.size());
    for (const int pipeline : choices("parallel.pipeline", request_.stated.pipeline, divisors(rest, layers))) {
      if (rest % pipeline != 0) continue;
      layout_.pipeline = pipeline;
      const int within = rest / pipeline;
      for (const int context : choices("parallel.context", request_.stated.context, divisors(within, within))) {
        if (within % context != 0) continue;
        layout_.context = context;
        layout_.data = within / context;
        const bool is_data_open = is_open("parallel.data") || request_.stated.data == 0;
        if (is_data_open ? request_.workload.batch % layout_.data == 0 : layout_.data == request_.stated.data)
          experts();
      }
    }
  }

  void experts() {
    std::int64_t count = 1;
    for (const auto& layer : request_.workload.model.layers)
      if (layer.experts) count = layer.experts->count;
    const int over = layout_.data * layout_.context * layout_.tensor;
    for (const int expert :
         choices("parallel.expert", request_.stated.expert, divisors(over, static_cast<int>(count)))) {
      layout_.expert = expert;
      schedules();
    }
  }

  void schedules() {
    std::vector<std::string> open = layout_.pipeline > 1 ? plan_schedules() : std::vector<std::string>{"1f1b"};
    for (const auto& schedule : choices("schedule.name", request_.stated.schedule, std::move(open))) {
      layout_.schedule = schedule;
      for (const int chunks : choices("schedule.chunks", request_.stated.chunks, open_chunks(schedule))) {
        layout_.chunks = chunks;
        microbatches();
      }
    }
  }

  std::vector<int> open_chunks(const std::string& schedule) const {
    if (schedule != "interleaved_1f1b" || layout_.pipeline == 1) return {default_chunks(schedule)};
    std::vector<int> chunks;
    const int layers = static_cast<int>(request_.workload.model.layers.size());
    for (int each = 2; each <= 8 && each * layout_.pipeline <= layers; ++each) chunks.push_back(each);
    return chunks;
  }

  void microbatches() {
    const auto samples = static_cast<int>((request_.workload.batch + layout_.data - 1) / layout_.data);
    if (const auto count = request_.config.schedule.microbatches) {
      if (*count > samples) return;
      layout_.microbatches = *count;
      layout_.microbatch = (samples + *count - 1) / *count;
      return recomputations();
    }
    std::vector<int> sizes;
    for (int size = 1; size <= samples; size *= 2)
      if (samples % size == 0) sizes.push_back(size);
    for (const int size : choices("schedule.microbatch_size", request_.stated.microbatch, sizes)) {
      if (size > samples) continue;
      layout_.microbatches = 0;
      layout_.microbatch = size;
      recomputations();
    }
  }

  void recomputations() {
    const std::vector<int> zeros =
        layout_.data * layout_.context > 1 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0};
    for (const Recompute recompute :
         choices("schedule.recompute", request_.stated.recompute,
                 {Recompute::kNone, Recompute::kSelective, Recompute::kParts, Recompute::kFull})) {
      layout_.recompute = recompute;
      for (const int zero : choices("parallel.zero", request_.stated.zero, zeros)) {
        layout_.zero = zero;
        shards();
      }
    }
  }

  // Over all ranks that see other samples, or, where these are on several hosts, over those of one.
  void shards() {
    std::vector<int> open = {0};
    const int batch = layout_.data * layout_.context, on_host = cluster_.per_host / layout_.tensor;
    if (on_host > 1 && on_host < batch && batch % on_host == 0) open.push_back(on_host);
    if (layout_.zero < kHighestZero) return layers(0, request_.stated.gather);
    for (const int shard : choices("parallel.shard", request_.stated.shard, std::move(open)))
      for (const auto& gather : choices("parallel.gather", request_.stated.gather, open_gathers()))
        layers(shard, gather);
  }

  // A stage and the next one are all stages without a pipeline.
  std::vector<std::string> open_gathers() const {
    if (layout_.pipeline == 1) return {"step", "microbatch"};
    return {"step", "window", "microbatch"};
  }

  void layers(int shard, const std::string& gather) {
    layout_.shard = shard;
    layout_.gather = gather;
    for (const bool balanced :
         is_open("schedule.layers") ? std::vector<bool>{false, true} : std::vector<bool>{request_.stated.balanced}) {
      layout_.balanced = balanced && layout_.pipeline > 1;
      if (layout_.balanced == balanced) vocabularies();
    }
  }

  void vocabularies() {
    const bool stated = request_.config.parallel.vocabulary == "pipeline" && layout_.pipeline > 1;
    for (const bool shares : choices("parallel.vocabulary", stated, {false, true})) {
      if (shares && layout_.pipeline == 1) continue;
      layout_.shares_vocabulary = shares;
      visit_(layout_);
    }
  }

  const PlanRequest& request_;
  const Cluster& cluster_;
  const std::function<void(const Layout&)>& visit_;
  Layout layout_;
};

}  // namespace

const std::vector<std::string>& plan_schedules() {
  static const std::vector<std::string> names = {"1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "dualpipe_v"};
  return names;
}

void visit_layouts(const PlanRequest& request, const Cluster& cluster,
                   const std::function<void(const Layout&)>& visit) {
  Visit(request, cluster, visit).run();
}

}  // namespace gantry::planner
