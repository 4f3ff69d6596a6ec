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
    if (const auto codes = encoded->coded(code)) return {turned(codes->codes), turned(codes->scales)};
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

void require_equal_scales(const RowEncoding& encoding, const CodedWeight& weight, const models::TensorName& name) {
  if (encoding.scales() == 0) return;
  const torch::Tensor grouped = weight.scales.view({-1, encoding.group});
  if (torch::equal(grouped, grouped.narrow(1, 0, 1).expand_as(grouped))) return;
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
  for (const auto& part : name.parts) {
    const Slice slice = slice_of_part(full, part);
    const CodedWeight read = coded_tensor(model, part.hugging_face, false, shape_of_part(slice), code);
    copy_common(weight.codes, full_slice(full), read.codes.view(slice.shape), slice);
    copy_common(weight.scales, full_slice(full), read.scales.view(slice.shape), slice);
  }
  return weight;
}

std::uint64_t load_records(const StoredModel& model, const models::TensorName& name, const HeldTensor& held,
                           const Coordinates& coordinates, WeightCode code) {
  const Slice mine = held_slice(held.placement, coordinates);
  const CodedWeight full = coded_weight(model, name, held.placement.global_shape, code);
  const CodedWeight part{take_slice(full.codes, mine).contiguous(), take_slice(full.scales, mine).contiguous()};
  const RowEncoding encoding = encoding_of(held.placement, coordinates, code);
  require_equal_scales(encoding, part, name);
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
