#include "gantry/nn/shard_style.h"

#include <fmt/format.h>

#include <torch/torch.h>

#include "gantry/core/error.h"

namespace gantry {

std::string describe(const ShardStyle& style) {
  if (const auto* column = std::get_if<Column>(&style)) {
    return column->parts.empty() ? fmt::format("Column{{segments {}, unit {}}}", column->segments, column->unit)
                                 : fmt::format("Column{{{} parts}}", column->parts.size());
  }
  if (const auto* row = std::get_if<Row>(&style)) return fmt::format("Row{{unit {}}}", row->unit);
  if (const auto* sequence = std::get_if<SequenceParallel>(&style))
    return fmt::format("SequenceParallel{{dim {}}}", sequence->dim);
  if (const auto* prepare = std::get_if<PrepareInput>(&style))
    return fmt::format("PrepareInput{{{} to {}}}", describe(prepare->from), describe(prepare->to));
  if (std::holds_alternative<OnHeads>(style)) return "OnHeads{}";
  return std::holds_alternative<Whole>(style) ? "Whole{}" : "Vocab{}";
}

void Shardable::claim() {
  if (claimed_) throw ConfigError({"", "it was split already", "", "build a new model for each split"});
  claimed_ = true;
}

void refuse_style(const char* module, const ShardStyle& style, const char* expected) {
  throw ConfigError({"", fmt::format("{} can't be split as {}", module, describe(style)), expected, ""});
}

AxisPlacement replicated_on_shards(GradientSum sum) {
  AxisPlacement placement = replicate();
  placement.partial_gradient = sum == GradientSum::kAtSync;
  return placement;
}

void set_global_names(torch::nn::Module& root) {
  for (const auto& item : root.named_modules("", /*include_self=*/false))
    if (auto* named = dynamic_cast<Named*>(item.value().get())) named->set_global_name(item.key());
}

}  // namespace gantry
