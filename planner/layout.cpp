// A layout: whether its sizes fit each other, and its text as overrides of a configuration and as words.
#include "gantry/planner/layout.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/base/number_text.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/planner/config.h"
#include "gantry/planner/costs.h"

namespace gantry::planner {

int Layout::microbatches_of(std::int64_t batch) const {
  if (microbatches > 0) return microbatches;
  const std::int64_t samples = (batch + data - 1) / data;
  return static_cast<int>((samples + microbatch - 1) / microbatch);
}

namespace {

// Whether attention and mixers of the layers support the layout.
std::optional<std::string> mixing_objection(const models::DecoderSpec& model, const Layout& layout) {
  if (model.vision && layout.tensor > model.vision->tower.heads)
    return fmt::format("tensor {} is above the {} heads of the image encoder", layout.tensor,
                       model.vision->tower.heads);
  if (model.vision && layout.context > 1)
    return fmt::format("models with an image encoder do not support context {}", layout.context);
  for (const auto& layer : model.layers) {
    if (layer.has_attention() && layout.tensor > layer.attention.heads)
      return fmt::format("tensor {} is above the {} heads", layout.tensor, layer.attention.heads);
    if (!layer.mixer) continue;
    if (layout.tensor > layer.mixer->largest_tensor())
      return fmt::format("tensor {} is above {}, the most ranks over which the {} are sharded", layout.tensor,
                         layer.mixer->largest_tensor(), layer.mixer->name());
    if (layout.sequence_parallel && !layer.mixer->shards_sequences())
      return fmt::format("the policy has no rules for the {} with parallel.sequence_parallel", layer.mixer->name());
    if (const std::int64_t most = layer.mixer->largest_context(layout.tensor);
        layout.context > 1 && layout.context > most)
      return fmt::format("context {} is above {}, the most ranks that share the {} of one of {} tensor ranks",
                         layout.context, most, layer.mixer->name(), layout.tensor);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> sizes_objection(const Workload& workload, const Layout& layout, const Cluster& cluster) {
  const auto& model = workload.model;
  if (!cluster.device.matrix_flops.contains(workload.precision))
    return fmt::format("cluster {} has no matrix rate for precision {}", cluster.name, workload.precision);
  if (layout.ranks() != cluster.ranks())
    return fmt::format("tensor {} * pipeline {} * context {} * data {} = {}, and {} of {} have {}", layout.tensor,
                       layout.pipeline, layout.context, layout.data, quantity(layout.ranks(), "rank"),
                       quantity(cluster.hosts, "host"), quantity(cluster.per_host, "device"), cluster.ranks());
  if (const auto refused = mixing_objection(model, layout)) return refused;
  if (workload.batch < layout.data)
    return fmt::format("{} samples over data {} leave {} replicas without a sample", workload.batch, layout.data,
                       layout.data - workload.batch);
  if (const auto samples = (workload.batch + layout.data - 1) / layout.data; samples < layout.microbatch)
    return fmt::format("microbatches of {} samples are above the {} samples of a replica ({} / data {})",
                       layout.microbatch, samples, workload.batch, layout.data);
  if (workload.sequence % (std::int64_t{2} * layout.context) != 0 && layout.context > 1)
    return fmt::format("{} tokens do not divide by 2 * context {}", workload.sequence, layout.context);
  if (layout.data * layout.context * layout.tensor % layout.expert != 0)
    return fmt::format("expert {} does not divide data {} * context {} * tensor {}", layout.expert, layout.data,
                       layout.context, layout.tensor);
  const auto experts = std::find_if(model.layers.begin(), model.layers.end(),
                                    [](const auto& layer) { return layer.experts.has_value(); });
  if (layout.expert > 1 && experts == model.layers.end())
    return fmt::format("expert {} is above 1, but the model has no experts", layout.expert);
  if (layout.expert > 1 && layout.tensor > 1 && !layout.sequence_parallel)
    return fmt::format("expert {} with tensor {} requires parallel.sequence_parallel: true", layout.expert,
                       layout.tensor);
  if (layout.shard > 0 && layout.data * layout.context % layout.shard != 0)
    return fmt::format("shard {} does not divide data {} * context {}", layout.shard, layout.data, layout.context);
  if (const int sharing = layout.shard * layout.tensor; sharing > layout.expert && sharing % layout.expert != 0)
    return fmt::format("shard {} * tensor {} is not a multiple of expert {}", layout.shard, layout.tensor,
                       layout.expert);
  if (const auto refused = vocabulary_objection(workload, layout)) return *refused;
  if (layout.expert > 1 && layout.expert > experts->experts->count)
    return fmt::format("expert {} is above the {} experts of a layer", layout.expert, experts->experts->count);
  return teacher_objection(workload, layout, cluster);
}

std::optional<std::string> vocabulary_objection(const Workload& workload, const Layout& layout) {
  if (!layout.shares_vocabulary) return std::nullopt;
  if (layout.zero > 1)
    return fmt::format("vocabulary over the pipeline does not support zero {}, only 0 and 1", layout.zero);
  if (layout.expert > 1) return fmt::format("vocabulary over the pipeline does not support expert {}", layout.expert);
  if (!workload.trained.adapters.empty()) return "vocabulary over the pipeline does not support adapters";
  if (workload.model.vision) return "vocabulary over the pipeline does not support image encoders";
  if (workload.model.mtp_loss > 0) return "vocabulary over the pipeline does not support multi-token prediction";
  if (layout.schedule == "dualpipe_v")
    return "vocabulary over the pipeline does not support dualpipe_v, because it overlaps actions";
  return std::nullopt;
}

std::string name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::kSelective:
      return "selective";
    case Recompute::kParts:
      return "parts";
    case Recompute::kFull:
      return "full";
    default:
      return "none";
  }
}

std::vector<std::string> overrides_of(const Layout& layout) {
  std::vector<std::string> keys = {fmt::format("parallel.tensor={}", layout.tensor),
                                   fmt::format("parallel.pipeline={}", layout.pipeline),
                                   fmt::format("parallel.data={}", layout.data)};
  if (layout.context > 1) keys.push_back(fmt::format("parallel.context={}", layout.context));
  if (layout.expert > 1) keys.push_back(fmt::format("parallel.expert={}", layout.expert));
  keys.push_back(fmt::format("parallel.sequence_parallel={}", layout.sequence_parallel));
  keys.push_back(fmt::format("parallel.zero={}", layout.zero));
  if (layout.shard > 0) keys.push_back(fmt::format("parallel.shard={}", layout.shard));
  if (layout.zero == kHighestZero && layout.gather != "auto") keys.push_back("parallel.gather=" + layout.gather);
  keys.push_back("schedule.name=" + layout.schedule);
  keys.push_back(fmt::format("schedule.chunks={}", layout.chunks));
  if (layout.microbatches == 0) keys.push_back(fmt::format("schedule.microbatch_size={}", layout.microbatch));
  if (layout.shares_vocabulary) keys.push_back("parallel.vocabulary=pipeline");
  if (layout.balanced) keys.push_back("schedule.layers=balanced");
  keys.push_back("schedule.recompute=" + name_of(layout.recompute));
  return keys;
}

std::string describe(const Layout& layout) {
  std::string text = fmt::format("tensor {}, pipeline {}, data {}", layout.tensor, layout.pipeline, layout.data);
  if (layout.context > 1) text += fmt::format(", context {}", layout.context);
  if (layout.expert > 1) text += fmt::format(", expert {}", layout.expert);
  if (layout.sequence_parallel) text += ", sequence parallel";
  if (layout.pipeline > 1) text += ", " + layout.schedule;
  if (layout.chunks > 1) text += fmt::format(" x{}", layout.chunks);
  if (layout.balanced) text += ", layers balanced";
  if (layout.shares_vocabulary) text += ", vocabulary over the pipeline";
  text += fmt::format(", microbatch {}, zero {}", layout.microbatch, layout.zero);
  if (layout.shard > 0) text += fmt::format(" over {}", layout.shard);
  if (layout.zero == kHighestZero && layout.gather != "auto") text += ", gather by " + layout.gather;
  if (layout.recompute != Recompute::kNone) text += ", recompute " + name_of(layout.recompute);
  return text;
}

}  // namespace gantry::planner
