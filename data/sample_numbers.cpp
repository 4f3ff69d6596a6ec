#include "gantry/data/sample_numbers.h"

#include <algorithm>

#include "gantry/data/scalar_type.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// A number for each sample, and not a row of them.
bool is_scalar(const SampleEntry& entry) { return entry.length == 0 && entry.shape.empty(); }

}  // namespace

std::map<NumberType, std::int64_t> widths_of(const std::vector<SampleEntry>& entries) {
  std::map<NumberType, std::int64_t> widths;
  for (const auto& entry : entries) {
    std::int64_t& width = widths[entry.type];
    width = std::max(width, entry.first + (is_scalar(entry) ? 1 : entry.length));
  }
  return widths;
}

TensorDict tensors_of(const std::vector<SampleEntry>& entries, const std::map<NumberType, torch::Tensor>& rows) {
  TensorDict made;
  for (const auto& entry : entries) {
    const torch::Tensor& numbers = rows.at(entry.type);
    torch::Tensor part =
        is_scalar(entry) ? numbers.select(1, entry.first) : numbers.narrow(1, entry.first, entry.length);
    if (!entry.shape.empty()) part = part.unflatten(1, entry.shape);
    made.set(entry.name, part.contiguous());
  }
  return made;
}

TensorDict sample_of(const std::vector<SampleEntry>& entries, const std::function<void(const NumberRow&)>& write) {
  std::map<NumberType, torch::Tensor> rows;
  for (const auto& [type, width] : widths_of(entries)) {
    rows[type] = torch::empty({1, width}, scalar_type_of(type));
    if (width > 0) write({type, rows[type].data_ptr()});
  }
  TensorDict made;
  for (const auto& [name, tensor] : tensors_of(entries, rows)) made.set(name, tensor[0]);
  return made;
}

}  // namespace gantry
