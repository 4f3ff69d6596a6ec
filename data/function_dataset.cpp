#include "gantry/data/function_dataset.h"

#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "gantry/data/scalar_type.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

FunctionDataset::FunctionDataset(std::int64_t size, Read read, std::int64_t sequence_length)
    : size_(size), read_(std::move(read)), sequence_length_(sequence_length) {
  if (size_ < 1) throw UsageError({"data set", fmt::format("it has {} samples", size_), "at least 1", ""});
  std::map<NumberType, std::int64_t> widths;
  for (const auto& [name, tensor] : read_(0)) {
    const auto type = tensor.defined() && tensor.is_cpu() ? number_type_of(tensor.scalar_type()) : std::nullopt;
    if (!type)
      throw UsageError({"data set entry '" + name + "'", "the tensor of sample 0 is " + describe(tensor),
                        "a tensor on the CPU, one of " + number_type_names(), "convert it"});
    std::int64_t& width = widths[*type];
    const bool is_number = tensor.dim() == 0;
    entries_.push_back({name, width, is_number ? 0 : tensor.numel(), *type,
                        is_number ? std::vector<std::int64_t>() : tensor.sizes().vec()});
    width += tensor.numel();
  }
  if (entries_.empty()) throw UsageError({"data set", "sample 0 has no tensors", "at least one", ""});
}

TensorDict FunctionDataset::sample(std::int64_t index) const {
  TensorDict made;
  const TensorDict all = read_(index);
  for (const SampleEntry& entry : entries_) {
    const torch::Tensor tensor = all.get(entry.name);
    if (!tensor.defined() || !tensor.is_cpu() || tensor.scalar_type() != scalar_type_of(entry.type))
      throw UsageError({fmt::format("data set entry '{}'", entry.name),
                        fmt::format("the tensor of sample {} is {}", index, describe(tensor)),
                        fmt::format("{} on the CPU, as in sample 0", facts_of(entry.type).name), "convert it"});
    made.set(entry.name, tensor.detach().contiguous());
  }
  return made;
}

void FunctionDataset::read_numbers(std::int64_t index, const NumberRow& row) const {
  const TensorDict all = sample(index);
  std::byte* to = row.bytes();
  for (const SampleEntry& entry : entries_) {
    const torch::Tensor& tensor = all.at(entry.name);
    if (tensor.sizes() != at::IntArrayRef(entry.shape))
      throw UsageError({fmt::format("data set entry '{}'", entry.name),
                        fmt::format("the tensor of sample {} is {}", index, describe(tensor)),
                        fmt::format("[{}], the shape of sample 0", fmt::join(entry.shape, ", ")),
                        "set DataLoaderOptions::collate, for example to pad_to_longest"});
    if (entry.type != row.type()) continue;
    std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    to += tensor.nbytes();
  }
}

}  // namespace gantry
