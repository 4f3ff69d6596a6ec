#include "gantry/planner/candidates.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gantry/core/config/schedule_names.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/models/described/vision_modules.h"
#include "gantry/planner/search.h"

namespace gantry::planner {
namespace {

// The layers of multi-token prediction are not partitioned.
int most_stages(const models::DecoderSpec& model) {
  return models::tower_layers(model) + models::main_layers(model) + (models::mtp_depths(model) > 0 ? 1 : 0);
}

std::vector<int> divisors(int number, int most) {
  std::vector<int> all;
  for (int each = 1; each <= std::min(number, most); ++each)
    if (number % each == 0) all.push_back(each);
  return all;
}

}  // namespace

Candidates::Candidates(const PlanRequest& request, const Cluster& cluster)
    : request_(request),
      cluster_(cluster),
      recomputations_(choices("schedule.recompute", request.stated.recompute,
                              {Recompute::kNone, Recompute::kSelective, Recompute::kParts, Recompute::kFull})) {}

void Candidates::visit_sizes(const Take& take) const {
  Layout layout = request_.stated;
  layout.recompute = recomputations_.front();
  layout.shares_vocabulary = false;
  std::int64_t heads = layout.tensor;
  for (const auto& layer : request_.workload.model.layers) {
    if (layer.has_attention()) heads = std::max(heads, layer.attention.heads);
    if (layer.mixer) heads = std::max(heads, layer.mixer->largest_tensor());
  }
  const int most = static_cast<int>(std::min<std::int64_t>(heads, cluster_.per_host));
  for (const int tensor : choices("parallel.tensor", request_.stated.tensor, divisors(cluster_.per_host, most))) {
    if (cluster_.ranks() % tensor != 0) continue;
    layout.tensor = tensor;
    layout.sequence_parallel = is_open("parallel.sequence_parallel") ? tensor > 1 : request_.stated.sequence_parallel;
    visit_pipelines(layout, take);
  }
}

void Candidates::visit_pipelines(Layout layout, const Take& take) const {
  const int rest = cluster_.ranks() / layout.tensor;
  const int layers = most_stages(request_.workload.model);
  const bool is_data_open = is_open("parallel.data") || request_.stated.data == 0;
  for (const int pipeline : choices("parallel.pipeline", request_.stated.pipeline, divisors(rest, layers))) {
    if (rest % pipeline != 0) continue;
    layout.pipeline = pipeline;
    const int within = rest / pipeline;
    for (const int context : choices("parallel.context", request_.stated.context, divisors(within, within))) {
      if (within % context != 0) continue;
      layout.context = context;
      layout.data = within / context;
      if (is_data_open ? request_.workload.batch % layout.data == 0 : layout.data == request_.stated.data)
        visit_experts(layout, take);
    }
  }
}

void Candidates::visit_experts(Layout layout, const Take& take) const {
  std::int64_t count = 1;
  for (const auto& layer : request_.workload.model.layers)
    if (layer.experts) count = layer.experts->count;
  const int over = layout.data * layout.context * layout.tensor;
  for (const int expert : choices("parallel.expert", request_.stated.expert, divisors(over, static_cast<int>(count)))) {
    layout.expert = expert;
    visit_microbatches(layout, take);
  }
}

void Candidates::visit_microbatches(Layout layout, const Take& take) const {
  const auto samples = static_cast<int>((request_.workload.batch + layout.data - 1) / layout.data);
  if (const auto count = request_.config.schedule.microbatches) {
    if (*count > samples) return;
    layout.microbatches = *count;
    layout.microbatch = (samples + *count - 1) / *count;
    return take(layout);
  }
  std::vector<int> sizes;
  for (int size = 1; size <= samples; size *= 2)
    if (samples % size == 0) sizes.push_back(size);
  for (const int size : choices("schedule.microbatch_size", request_.stated.microbatch, sizes)) {
    if (size > samples) continue;
    layout.microbatches = 0;
    layout.microbatch = size;
    take(layout);
  }
}

void Candidates::visit_placements(const Layout& sizes, const Take& take) const {
  Layout layout = sizes;
  const bool is_piped = layout.pipeline > 1;
  const bool shares_stated = request_.config.parallel.vocabulary == "pipeline" && is_piped;
  const std::vector<bool> balanced = is_open("schedule.layers") && is_piped
                                         ? std::vector<bool>{false, true}
                                         : std::vector<bool>{request_.stated.balanced && is_piped};
  for (const auto& schedule : choices("schedule.name", request_.stated.schedule,
                                      is_piped ? plan_schedules() : std::vector<std::string>{"1f1b"})) {
    layout.schedule = schedule;
    for (const int chunks : choices("schedule.chunks", request_.stated.chunks, chunks_of(layout))) {
      layout.chunks = chunks;
      for (const bool by_work : balanced)
        for (const bool shares : choices("parallel.vocabulary", shares_stated, {false, true})) {
          if (shares && !is_piped) continue;
          layout.balanced = by_work;
          layout.shares_vocabulary = shares;
          take(layout);
        }
    }
  }
}

std::vector<int> Candidates::chunks_of(const Layout& layout) const {
  if (layout.schedule != "interleaved_1f1b" || layout.pipeline == 1) return {default_chunks(layout.schedule)};
  std::vector<int> chunks;
  const int layers = most_stages(request_.workload.model);
  for (int each = 2; each <= 8 && each * layout.pipeline <= layers; ++each) chunks.push_back(each);
  return chunks;
}

std::vector<int> Candidates::zeros(const Layout& sizes) const {
  std::vector<int> open = {0};
  if (sizes.data * sizes.context > 1) open = {0, 1, 2, 3};
  return choices("parallel.zero", request_.stated.zero, std::move(open));
}

// Shards over all ranks with different samples or, if these are on several hosts, over those of one host. A window (the
// current stage and the next) differs from a step only if a rank has more than two stages.
void Candidates::visit_states(const Layout& placed, const Take& take) const {
  std::vector<int> shards = {0};
  const int batch = placed.data * placed.context, on_host = cluster_.per_host / placed.tensor;
  if (on_host > 1 && on_host < batch && batch % on_host == 0) shards.push_back(on_host);
  std::vector<std::string> gathers = {"step", "microbatch"};
  if (placed.pipeline > 1 && placed.chunks > 2) gathers.insert(gathers.begin() + 1, "window");
  Layout layout = placed;
  for (const int zero : zeros(placed)) {
    layout.zero = zero;
    if (zero < kHighestZero) {
      layout.shard = 0;
      layout.gather = request_.stated.gather;
      take(layout);
      continue;
    }
    for (const int shard : choices("parallel.shard", request_.stated.shard, shards))
      for (const auto& gather : choices("parallel.gather", request_.stated.gather, gathers)) {
        layout.shard = shard;
        layout.gather = gather;
        take(layout);
      }
  }
}

bool Candidates::may_share_vocabulary() const {
  return is_open("parallel.vocabulary") || request_.config.parallel.vocabulary == "pipeline";
}

bool Candidates::may_leave_stages_empty() const {
  return is_open("schedule.layers") || request_.stated.balanced || !request_.stated.layers.empty();
}

const std::vector<std::string>& plan_schedules() {
  static const std::vector<std::string> names = {"1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "dualpipe_v"};
  return names;
}

}  // namespace gantry::planner
