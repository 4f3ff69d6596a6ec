#include "gantry/data/tensor_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/data/scalar_type.h"
#include "gantry/data/tensor_dataset.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

TensorDict views_of(const SafetensorsFile& file, const std::string& path) {
  TensorDict views;
  std::int64_t samples = 0;
  for (const auto& name : file.names()) {
    const auto& shape = file.shape(name);
    if (shape.empty() || shape[0] == 0 || (samples != 0 && shape[0] != samples))
      throw InputError({path,
                        fmt::format("'{}' is {} [{}]", name, dtype_name(file.dtype(name)), fmt::join(shape, ", ")),
                        samples == 0 ? "[samples, ...] with at least one sample"
                                     : fmt::format("{} samples along dim 0, like '{}'", samples, file.names()[0]),
                        "write every entry of the batch with the same number of samples"});
    samples = shape[0];
    const torch::Tensor view = file.view(name);
    if (!number_type_of(view.scalar_type()))
      throw InputError(
          {path, "'" + name + "' is " + describe(view), "one of " + number_type_names(), "cast it to one of these"});
    views.set(name, view);
  }
  if (samples == 0)
    throw InputError({path, "the file has no tensors", "at least one entry [samples, ...]",
                      "see docs/data_labelled.md, \"Tensors\""});
  return views;
}

TensorDataset samples_of(const SafetensorsFile& file, const std::string& path) {
  const TensorDict views = views_of(file, path);
  const torch::Tensor ids = views.get("input_ids");
  return TensorDataset(views, ids.defined() && ids.dim() == 2 ? ids.size(1) : 0);
}

class TensorFile final : public Dataset {
 public:
  explicit TensorFile(const std::string& path) : file_(path), samples_(samples_of(file_, path)) {}

  std::int64_t size() const override { return samples_.size(); }
  std::int64_t sequence_length() const override { return samples_.sequence_length(); }
  std::vector<SampleEntry> entries() const override { return samples_.entries(); }
  void read_numbers(std::int64_t index, const NumberRow& row) const override { samples_.read_numbers(index, row); }

 private:
  SafetensorsFile file_;  // samples_ has views of its bytes
  TensorDataset samples_;
};

}  // namespace

std::unique_ptr<Dataset> open_tensor_file(const std::string& path, const std::string& where) {
  if (!is_file(path))
    throw InputError({where, "'" + path + "' is not a file", "a safetensors file of tensors [samples, ...]",
                      "check the path; it is relative to the working directory"});
  return std::make_unique<TensorFile>(path);
}

}  // namespace gantry
