// A layout as text: overrides of a configuration, and words.
#include <fmt/format.h>

#include "gantry/core/zero_level.h"
#include "gantry/planner/configured.h"

namespace gantry::planner {

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
