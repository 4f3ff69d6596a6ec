#include "gantry/nn/shard_style.h"

#include <fmt/format.h>

namespace gantry {

std::string describe(const ShardStyle& style) {
  if (const auto* column = std::get_if<Column>(&style))
    return fmt::format("Column{{segments {}, unit {}}}", column->segments, column->unit);
  if (const auto* row = std::get_if<Row>(&style)) return fmt::format("Row{{unit {}}}", row->unit);
  return "Vocab{}";
}

void set_global_names(torch::nn::Module& root) {
  for (const auto& item : root.named_modules("", /*include_self=*/false))
    if (auto* named = dynamic_cast<Named*>(item.value().get())) named->set_global_name(item.key());
}

}  // namespace gantry
