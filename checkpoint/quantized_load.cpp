#include "gantry/checkpoint/quantized_load.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

// A tensor of the files, in its stored shape.
CodedWeight coded_tensor(const StoredModel& model, const std::string& name, bool transposed, const Shape& stored,
                         WeightCode code) {
  const auto turned = [&](const torch::Tensor& tensor) { return transposed ? tensor.t().contiguous() : tensor; };
  if (const EncodedTensor* encoded = model.encoded(name)) {
    encoded->check(stored);
    if (const auto codes = encoded->coded(code)) return for_each(*codes, turned);
  } else {
    const TensorPlace& place = model.place(name);
    check_stored_shape(place, name, stored);
    check_stored_real(place, name);
  }
  return quantize(code, turned(model.read(name)));
}

// The encoding of this rank's part of the inputs.
RowEncoding encoding_of(const Placement& placement, const Coordinates& coordinates, WeightCode code) {
  const std::int64_t inputs = placement.global_shape.back();
  for (const ShardSpec& shard : placement.shards)
    if (shard.dim == 1 && shard.row == 0)
      return row_encoding(code, inputs, shard.ranges(shard.rank_of(coordinates), inputs));
  return row_encoding(code, inputs, {{0, inputs}});
}

void require_scales_of(const RowEncoding& encoding, const CodedWeight& weight, const models::TensorName& name) {
  if (has_scales_of(encoding, weight)) return;
  if (is_double(encoding.code))
    throw InputError({name.name, "the scales in the files belong to other blocks than those that this rank needs",
                      fmt::format("blocks of a multiple of {} inputs and of {} scales", kScaleBlock, kScalesOfBlock),
                      "remove model.quantize_double: the scales are then decoded"});
  throw InputError({name.name, "the scales in the files belong to other blocks than those that this rank needs",
                    fmt::format("blocks of a multiple of {} inputs", kScaleBlock),
                    "remove model.quantize: the weights are then decoded"});
}

}  // namespace

CodedWeight coded_weight(const StoredModel& model, const models::TensorName& name, const Shape& full, WeightCode code) {
  if (name.parts.empty()) {
    Shape stored = full;
    if (name.transposed) std::reverse(stored.begin(), stored.end());
    return coded_tensor(model, name.hugging_face, name.transposed, stored, code);
  }
  CodedWeight weight{torch::zeros(full, torch::kUInt8), torch::zeros(full, torch::kFloat32)};
  if (is_double(code)) {
    weight.scale_codes = torch::zeros_like(weight.codes);
    weight.means = torch::zeros_like(weight.scales);
  }
  for (const auto& part : name.parts) {
    const Slice slice = slice_of_part(full, part);
    const CodedWeight read = coded_tensor(model, part.hugging_face, false, shape_of_part(slice), code);
    const auto place = [&](torch::Tensor& into, const torch::Tensor& from) {
      if (into.defined()) copy_common(into, full_slice(full), from.reshape(slice.shape), slice);
    };
    place(weight.codes, read.codes);
    place(weight.scales, read.scales);
    place(weight.scale_codes, read.scale_codes);
    place(weight.means, read.means);
  }
  return weight;
}

std::uint64_t load_records(const StoredModel& model, const models::TensorName& name, const HeldTensor& held,
                           const Coordinates& coordinates, WeightCode code) {
  const Slice mine = held_slice(held.placement, coordinates);
  const CodedWeight full = coded_weight(model, name, held.placement.global_shape, code);
  const CodedWeight part = for_each(full, [&](const torch::Tensor& tensor) { return take_slice(tensor, mine); });
  const RowEncoding encoding = encoding_of(held.placement, coordinates, code);
  require_scales_of(encoding, part, name);
  const torch::NoGradGuard no_grad;
  torch::Tensor target = held.tensor;
  target.copy_(pack_records(encoding, part));
  return full.codes.nbytes();
}

void refuse_records(const HeldTensor& held) {
  if (!has_records(held.tensor)) return;
  throw UsageError({held.placement.name,
                    "the weight is in 4 or 8 bits (model.quantize), which this form of a model cannot hold",
                    "adapters alone, or a model without model.quantize", "remove model.quantize"});
}

}  // namespace gantry
