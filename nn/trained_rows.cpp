#include "gantry/nn/trained_rows.h"

#include <algorithm>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

std::int64_t TrainedRows::position_of(std::int64_t row) const {
  const auto found = std::find(rows_.begin(), rows_.end(), row);
  return found == rows_.end() ? -1 : found - rows_.begin();
}

const TrainedRows::Held& TrainedRows::held(const Range& held) {
  if (held_.positions.defined() && held_.positions.device() == values.device() && held_range_ == held) return held_;
  std::vector<std::int64_t> positions(static_cast<std::size_t>(held.size()), -1), rows, places;
  for (std::size_t place = 0; place < rows_.size(); ++place) {
    if (rows_[place] < held.begin || rows_[place] >= held.end) continue;
    rows.push_back(rows_[place] - held.begin);
    places.push_back(static_cast<std::int64_t>(place));
    positions[static_cast<std::size_t>(rows.back())] = places.back();
  }
  const auto on_device = [&](const std::vector<std::int64_t>& numbers) {
    return torch::tensor(numbers, torch::kInt64).to(values.device());
  };
  held_range_ = held;
  held_ = {on_device(positions), on_device(rows), on_device(places)};
  return held_;
}

}  // namespace gantry::nn
