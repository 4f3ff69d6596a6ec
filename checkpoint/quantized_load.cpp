#include "gantry/checkpoint/quantized_load.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

// The rows of a weight that files store in one tensor: all rows of a matrix, or one expert of a stack.
struct StoredRows {
  std::string name;
  Shape shape;  // shape of the tensor in the files
  Range rows;
  bool transposed = false;
  Slice slice;  // their place in the weight
};

[[noreturn]] void refuse_uncoded(const StoredModel& model, const std::string& name) {
  throw InputError({model.stored_name(name), "the weight is not stored in MXFP4, and Gantry does not compute its codes",
                    "experts in MXFP4 with model.quantize: mxfp4, as in gpt-oss", "remove model.quantize"});
}

torch::Tensor real_values(const StoredModel& model, const StoredRows& stored) {
  const bool is_stack = stored.shape.size() == 3;
  if (const EncodedTensor* encoded = model.encoded(stored.name))
    return is_stack ? encoded->decode(stored.rows) : model.read(stored.name);
  const TensorPlace& place = model.place(stored.name);
  check_stored_shape(place, stored.name, stored.shape);
  check_stored_real(place, stored.name);
  return is_stack ? place.file->read_slice(place.name, 0, {stored.rows}) : model.read(stored.name);
}

CodedWeight coded_rows(const StoredModel& model, const StoredRows& stored, WeightCode code) {
  const auto turned = [&](const torch::Tensor& tensor) { return stored.transposed ? tensor.t().contiguous() : tensor; };
  if (const EncodedTensor* encoded = model.encoded(stored.name)) {
    encoded->check(stored.shape);
    if (const auto codes = encoded->coded(code, stored.rows)) return for_each(*codes, turned);
  }
  if (!encodes_linear(code)) refuse_uncoded(model, stored.name);
  return quantize(code, turned(real_values(model, stored)));
}

std::vector<StoredRows> stored_rows(const models::TensorName& name, const Shape& full, WeightCode code) {
  std::vector<StoredRows> all;
  for (const auto& part : name.parts) {
    const Slice slice = slice_of_part(full, part);
    const Shape shape = shape_of_part(slice);
    all.push_back({part.hugging_face, shape, {0, shape.front()}, false, slice});
  }
  if (!name.parts.empty()) return all;
  Shape shape = full;
  if (name.transposed) std::reverse(shape.begin(), shape.end());
  if (code == WeightCode::kMxfp4) std::swap(shape[1], shape[2]);  // files have stacks [experts, in, out] of blocks
  if (full.size() == 2) return {{name.hugging_face, shape, {0, shape.front()}, name.transposed, full_slice(full)}};
  for (std::int64_t expert = 0; expert < full.front(); ++expert) {
    const Range rows{expert, expert + 1};
    all.push_back({name.hugging_face, shape, rows, false, apply_shards(full, {{0, 0, {rows}}})});
  }
  return all;
}

CodedWeight empty_codes(WeightCode code, const Shape& shape) {
  const torch::Tensor bytes = torch::zeros(shape, torch::kUInt8);
  if (code == WeightCode::kMxfp4) return {bytes, torch::zeros_like(bytes)};
  const torch::Tensor numbers = torch::zeros(shape, torch::kFloat32);
  if (!is_double(code)) return {bytes, numbers};
  return {bytes, numbers, torch::zeros_like(bytes), torch::zeros_like(numbers)};
}

struct ReadCodes {
  CodedWeight weight;
  std::uint64_t bytes = 0;
};

// The codes of a slice of a weight. Tensors without a part of it are not read.
ReadCodes codes_of_slice(const StoredModel& model, const models::TensorName& name, const Slice& wanted,
                         WeightCode code) {
  ReadCodes result{empty_codes(code, wanted.shape)};
  for (const StoredRows& stored : stored_rows(name, wanted.global, code)) {
    if (!have_common(wanted, stored.slice)) continue;
    const CodedWeight read = coded_rows(model, stored, code);
    const auto place = [&](torch::Tensor& into, const torch::Tensor& from) {
      if (into.defined()) copy_common(into, wanted, from.reshape(stored.slice.shape).contiguous(), stored.slice);
    };
    place(result.weight.codes, read.codes);
    place(result.weight.scales, read.scales);
    place(result.weight.scale_codes, read.scale_codes);
    place(result.weight.means, read.means);
    result.bytes += read.codes.nbytes();
  }
  return result;
}

// The encoding of this rank's part of the inputs.
RowEncoding encoding_of(const Placement& placement, const Coordinates& coordinates, WeightCode code) {
  const std::int64_t inputs = placement.global_shape.back();
  for (const ShardSpec& shard : placement.shards)
    if (shard.dim == static_cast<int>(placement.global_shape.size()) - 1 && shard.row == 0)
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
                    fmt::format("blocks of a multiple of {} inputs", scale_block(encoding.code)),
                    "remove model.quantize: the weights are then decoded"});
}

}  // namespace

CodedWeight coded_weight(const StoredModel& model, const models::TensorName& name, const Shape& full, WeightCode code) {
  return codes_of_slice(model, name, full_slice(full), code).weight;
}

std::uint64_t load_records(const StoredModel& model, const models::TensorName& name, const HeldTensor& held,
                           const Coordinates& coordinates, WeightCode code) {
  const RowEncoding encoding = encoding_of(held.placement, coordinates, code);
  const ReadCodes read = codes_of_slice(model, name, held_slice(held.placement, coordinates), code);
  const CodedWeight rows = for_each(read.weight, [&](const torch::Tensor& tensor) {
    return tensor.view({-1, encoding.columns});
  });
  require_scales_of(encoding, rows, name);
  const torch::NoGradGuard no_grad;
  torch::Tensor target = held.tensor;
  target.copy_(pack_records(encoding, rows).view_as(target));
  return read.bytes;
}

void refuse_records(const HeldTensor& held) {
  if (!has_records(held.tensor)) return;
  throw UsageError({held.placement.name,
                    "the weight is in 4 or 8 bits (model.quantize), which this form of a model cannot hold",
                    "adapters alone, or a model without model.quantize", "remove model.quantize"});
}

}  // namespace gantry
