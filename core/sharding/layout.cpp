#include "gantry/core/layout.h"

#include <fmt/format.h>

namespace gantry {

std::string describe(const Layout& layout) {
  if (const auto* shard = std::get_if<Shard>(&layout)) return fmt::format("Shard({})", shard->dim);
  return std::holds_alternative<Replicate>(layout) ? "Replicate" : "Partial";
}

}  // namespace gantry
