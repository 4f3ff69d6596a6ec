#include "gantry/data/tensor_dataset.h"

#include <cstring>
#include <fmt/format.h>
#include <map>

#include "gantry/core/error.h"
#include "gantry/data/scalar_type.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Returns the number of bytes of one sample.
std::size_t bytes_of(const torch::Tensor& tensor) { return tensor.nbytes() / static_cast<std::size_t>(tensor.size(0)); }

}  // namespace

TensorDataset::TensorDataset(const TensorDict& samples, std::int64_t sequence_length)
    : sequence_length_(sequence_length) {
  std::map<NumberType, std::int64_t> width;  // numbers per sample of each type so far
  for (const auto& [name, tensor] : samples) {
    const std::string where = "data set entry '" + name + "'";
    const auto type = tensor.defined() ? number_type_of(tensor.scalar_type()) : std::nullopt;
    if (!type)
      throw UsageError(
          {where, "the entry is " + describe(tensor), "one of " + number_type_names(), "cast it to one of these"});
    if (tensor.dim() == 0 || tensor.size(0) == 0 || (size_ != 0 && tensor.size(0) != size_) || !tensor.is_cpu())
      throw UsageError({where, fmt::format("the entry is {} on {}", describe(tensor), tensor.device().str()),
                        size_ != 0 ? fmt::format("{} samples along dim 0, on the CPU", size_)
                                   : "[samples, ...] with at least one sample, on the CPU",
                        "pass the same number of samples in every entry"});
    size_ = tensor.size(0);
    const std::vector<std::int64_t> shape = tensor.sizes().slice(1).vec();
    const std::int64_t numbers = tensor.numel() / size_;
    entries_.push_back({name, width[*type], shape.empty() ? 0 : numbers, *type, shape});
    tensors_.push_back(tensor.detach().contiguous());
    width[*type] += numbers;
  }
  if (size_ == 0) throw UsageError({"data set", "there are no tensors", "at least one entry [samples, ...]", ""});
}

void TensorDataset::read_numbers(std::int64_t index, const NumberRow& row) const {
  std::byte* to = row.bytes();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].type != row.type()) continue;
    const std::size_t bytes = bytes_of(tensors_[i]);
    const auto* from = static_cast<const std::byte*>(tensors_[i].const_data_ptr());
    std::memcpy(to, from + static_cast<std::size_t>(index) * bytes, bytes);
    to += bytes;
  }
}

}  // namespace gantry
