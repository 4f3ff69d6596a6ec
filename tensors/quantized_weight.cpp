#include "gantry/tensors/quantized_weight.h"

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <c10/util/Float8_e4m3fn.h>

#include "gantry/core/error.h"
#include "gantry/tensors/block_codes.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/double_scales.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Quantiles of a normal distribution, from the paper of QLoRA.
constexpr std::array<float, 16> kNf4Values = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};
// A sign bit, and eight magnitudes that are not in ascending order.
constexpr std::array<float, 16> kFp4Values = {
    0.0F,  0.0625F / 12,  8.0F / 12,  1.0F,  4.0F / 12,  0.5F,  2.0F / 12,  0.25F,
    -0.0F, -0.0625F / 12, -8.0F / 12, -1.0F, -4.0F / 12, -0.5F, -2.0F / 12, -0.25F,
};
// A sign bit, two bits of exponent, and one of mantissa.
constexpr std::array<float, 16> kE2m1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                               -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
constexpr float kLargestInt8 = 127, kLargestFp8 = 448;
constexpr std::int64_t kRowsOfTask = 16;
constexpr std::int64_t kElementsAtOnce = std::int64_t{1} << 22;

const std::array<float, 256>& fp8_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = c10::Float8_e4m3fn(static_cast<std::uint8_t>(i), c10::Float8_e4m3fn::from_bits());
    return values;
  }();
  return kValues;
}

const std::array<float, 16>& table_of(WeightCode code) {
  if (code == WeightCode::kMxfp4) return kE2m1Values;
  return code == WeightCode::kNf4 || code == WeightCode::kNf4Double ? kNf4Values : kFp4Values;
}

CodedWeight quantize_rows(const torch::Tensor& values) {
  const torch::Tensor largest = values.abs().amax(1, /*keepdim=*/true);
  const torch::Tensor factor = torch::where(largest > 0, kLargestInt8 / largest, torch::zeros_like(largest));
  return {(values * factor).round().to(torch::kInt8).view(torch::kUInt8), largest.expand_as(values).contiguous()};
}

// In blocks of kFp8Columns rows and columns; the last ones may be smaller.
CodedWeight quantize_squares(const torch::Tensor& values) {
  const std::int64_t rows = values.size(-2), columns = values.size(-1);
  const auto full = [](std::int64_t size) { return (size + kFp8Columns - 1) / kFp8Columns; };
  const torch::Tensor padded =
      torch::constant_pad_nd(values, {0, full(columns) * kFp8Columns - columns, 0, full(rows) * kFp8Columns - rows});
  const torch::Tensor largest =
      padded.abs().view({-1, full(rows), kFp8Columns, full(columns), kFp8Columns}).amax({2, 4});
  const torch::Tensor scales = (largest / kLargestFp8)
                                   .repeat_interleave(kFp8Columns, 1)
                                   .repeat_interleave(kFp8Columns, 2)
                                   .narrow(1, 0, rows)
                                   .narrow(2, 0, columns)
                                   .contiguous()
                                   .view_as(values);
  const torch::Tensor scaled = torch::where(scales > 0, values / scales, torch::zeros_like(values));
  return {scaled.to(torch::kFloat8_e4m3fn).view(torch::kUInt8), scales};
}

CodedWeight quantize_blocks(WeightCode code, const torch::Tensor& values) {
  const auto [ascending, codes] = code_values(code).sort(/*stable=*/true, 0, /*descending=*/false);
  const BlockCodes coded = encode_blocks(values.reshape({1, -1}), kScaleBlock, ascending);
  const auto spread = [&](const torch::Tensor& numbers, std::int64_t block) {
    return numbers.view({-1, 1}).expand({-1, block}).reshape({-1}).narrow(0, 0, values.numel()).view_as(values);
  };
  CodedWeight made{codes.to(torch::kUInt8).index_select(0, coded.codes.reshape({-1}).to(torch::kInt32)).view_as(values),
                   {}};
  if (!is_double(code)) {
    made.scales = spread(coded.scales, kScaleBlock);
    return made;
  }
  const DoubleScales scales = encode_scales(coded.scales.view({-1}));
  made.scales = spread(scales.factors, kScaleBlock * kScalesOfBlock);
  made.scale_codes = spread(scales.codes, kScaleBlock);
  made.means = scales.means.expand_as(values);
  return made;
}

// 2^(exponent - 127), and NaN for 255.
torch::Tensor powers_of_two(const torch::Tensor& exponents) {
  return exponents.view(torch::kFloat8_e8m0fnu).to(torch::kFloat32);
}

// [rows, encoding.scales()]. The copy starts at an address that is a multiple of four.
torch::Tensor scales_of_records(const RowEncoding& encoding, const torch::Tensor& records) {
  const torch::Tensor bytes = records.narrow(1, 0, encoding.scale_bytes());
  if (is_double(encoding.code) && encoding.scales() > 0) return unpack_double_scales(encoding, bytes);
  const torch::Tensor apart = bytes.clone(at::MemoryFormat::Contiguous);
  if (encoding.code == WeightCode::kMxfp4) return powers_of_two(apart);
  return apart.view(torch::kFloat32);
}

// Returns the first of each group of neighbouring inputs, [rows, encoding.scales()].
torch::Tensor by_group(const RowEncoding& encoding, const torch::Tensor& tensor) {
  return tensor.reshape({tensor.size(0), encoding.scales(), encoding.group}).select(2, 0);
}

bool is_equal_in_groups(const RowEncoding& encoding, const torch::Tensor& tensor) {
  return torch::equal(by_group(encoding, tensor).unsqueeze(2).expand({-1, -1, encoding.group}).reshape_as(tensor),
                      tensor);
}

torch::Tensor scaled_values(WeightCode code, const torch::Tensor& codes, const torch::Tensor& scales) {
  if (code == WeightCode::kInt8) return codes.view(torch::kInt8).to(torch::kFloat32) * (scales / kLargestInt8);
  if (code == WeightCode::kFp8) return codes.view(torch::kFloat8_e4m3fn).to(torch::kFloat32) * scales;
  const torch::Tensor table = code_values(code).to(codes.device());
  return table.index_select(0, codes.reshape({-1}).to(torch::kInt32)).view_as(codes) * scales;
}

// One multiplication for each element, so that the values are those of values_of() on every device.
torch::Tensor unpack_by_operators(const RowEncoding& encoding, const torch::Tensor& records) {
  const std::int64_t rows = records.size(0);
  const torch::Tensor stored = records.narrow(1, encoding.scale_bytes(), encoding.code_bytes());
  torch::Tensor codes = stored;
  if (!is_byte(encoding.code))
    codes = torch::stack({stored.bitwise_right_shift(4), stored.bitwise_and(15)}, 2)
                .view({rows, 2 * encoding.code_bytes()})
                .narrow(1, 0, encoding.columns);
  const std::vector<std::int64_t> grouped = {rows, encoding.scales(), encoding.group};
  const torch::Tensor scales = scales_of_records(encoding, records).unsqueeze(2);
  return scaled_values(encoding.code, codes.reshape(grouped), scales).view({rows, encoding.columns});
}

// In blocks of rows, which bounds the memory of intermediate results.
torch::Tensor unpack_on_device(const RowEncoding& encoding, const torch::Tensor& records, torch::ScalarType type) {
  const std::int64_t rows = records.size(0);
  torch::Tensor values = torch::empty({rows, encoding.columns}, records.options().dtype(type));
  if (values.numel() == 0) return values;
  const std::int64_t at_once = std::max<std::int64_t>(1, kElementsAtOnce / encoding.columns);
  for (std::int64_t row = 0; row < rows; row += at_once) {
    const std::int64_t count = std::min(at_once, rows - row);
    values.narrow(0, row, count).copy_(unpack_by_operators(encoding, records.narrow(0, row, count)));
  }
  return values;
}

// Values of the codes from `first` to `end`, which share a scale. Two codes are in a byte, the first in its high half.
template <class Element>
void unpack_half_bytes(const std::uint8_t* codes, const std::array<float, 16>& table, float scale, std::int64_t first,
                       std::int64_t end, Element* values) {
  std::int64_t i = first;
  if (i % 2 == 1 && i < end) {
    values[i] = static_cast<Element>(table[codes[i / 2] & 15] * scale);
    ++i;
  }
  for (; i + 1 < end; i += 2) {
    const std::uint8_t pair = codes[i / 2];
    values[i] = static_cast<Element>(table[pair >> 4] * scale);
    values[i + 1] = static_cast<Element>(table[pair & 15] * scale);
  }
  if (i < end) values[i] = static_cast<Element>(table[codes[i / 2] >> 4] * scale);
}

template <class Element>
void unpack_integers(const std::uint8_t* codes, float scale, std::int64_t columns, Element* values) {
  for (std::int64_t i = 0; i < columns; ++i)
    values[i] = static_cast<Element>(static_cast<float>(static_cast<std::int8_t>(codes[i])) * (scale / kLargestInt8));
}

template <class Element>
void unpack_floats(const RowEncoding& encoding, const std::uint8_t* codes, const float* scale, Element* values) {
  const std::array<float, 256>& table = fp8_values();
  for (std::int64_t first = 0; first < encoding.columns; first += encoding.group, ++scale)
    for (std::int64_t i = first; i < first + encoding.group; ++i)
      values[i] = static_cast<Element>(table[codes[i]] * *scale);
}

template <class Element>
void unpack_row(const RowEncoding& encoding, const std::uint8_t* codes, const float* scale,
                const std::array<float, 16>& table, Element* values) {
  if (encoding.code == WeightCode::kInt8) return unpack_integers(codes, *scale, encoding.columns, values);
  if (encoding.code == WeightCode::kFp8) return unpack_floats(encoding, codes, scale, values);
  for (std::int64_t first = 0; first < encoding.columns; first += encoding.group, ++scale)
    unpack_half_bytes(codes, table, *scale, first, first + encoding.group, values);
}

}  // namespace

torch::Tensor code_values(WeightCode code) {
  if (code == WeightCode::kFp8)
    return torch::tensor(at::ArrayRef<float>(fp8_values().data(), fp8_values().size()), torch::kFloat32);
  const std::array<float, 16>& table = table_of(code);
  return torch::tensor(at::ArrayRef<float>(table.data(), table.size()), torch::kFloat32);
}

CodedWeight quantize(WeightCode code, const torch::Tensor& weight) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor values = weight.to(torch::kFloat32).contiguous();
  if (code == WeightCode::kMxfp4)
    throw InternalError({"quantize", "mxfp4 codes are read from files and are not computed", "another code", ""});
  if (code == WeightCode::kFp8) return quantize_squares(values);
  return code == WeightCode::kInt8 ? quantize_rows(values) : quantize_blocks(code, values);
}

torch::Tensor values_of(WeightCode code, const CodedWeight& weight) {
  const torch::NoGradGuard no_grad;
  if (code == WeightCode::kMxfp4) return scaled_values(code, weight.codes, powers_of_two(weight.scales));
  if (!is_double(code)) return scaled_values(code, weight.codes, weight.scales);
  return scaled_values(code, weight.codes, decode_scales({weight.scale_codes, weight.scales, weight.means}));
}

bool has_scales_of(const RowEncoding& encoding, const CodedWeight& weight) {
  if (encoding.scales() == 0) return true;
  if (!is_equal_in_groups(encoding, weight.scales)) return false;
  if (!is_double(encoding.code)) return true;
  const torch::Tensor means = by_group(encoding, weight.means);
  return is_equal_in_groups(encoding, weight.scale_codes) &&
         most_runs(by_group(encoding, weight.scales)) <= encoding.runs &&
         torch::equal(means, means.narrow(1, 0, 1).expand_as(means));
}

torch::Tensor pack_records(const RowEncoding& encoding, const CodedWeight& weight) {
  const torch::NoGradGuard no_grad;
  const std::int64_t rows = weight.codes.size(0);
  torch::Tensor codes = weight.codes;
  if (!is_byte(encoding.code)) {
    const torch::Tensor pairs =
        torch::constant_pad_nd(codes, {0, encoding.columns % 2}).view({rows, encoding.code_bytes(), 2});
    codes = pairs.select(2, 0).bitwise_left_shift(4).bitwise_or(pairs.select(2, 1));
  }
  if (encoding.scales() == 0) return codes.contiguous();
  // A copy, because a dimension of size 1 may have another stride in contiguous tensors, which view() refuses.
  const torch::Tensor scales = by_group(encoding, weight.scales).clone(at::MemoryFormat::Contiguous);
  if (!is_double(encoding.code)) return torch::cat({scales.view(torch::kUInt8), codes}, 1).contiguous();
  const DoubleScales parts{by_group(encoding, weight.scale_codes), scales, by_group(encoding, weight.means)};
  return torch::cat({pack_double_scales(encoding, parts), codes}, 1).contiguous();
}

void make_records(torch::Tensor& weight, std::int64_t record_bytes, torch::Device device) {
  std::vector<std::int64_t> shape = weight.sizes().vec();
  shape.back() = record_bytes;
  release_tensor(weight);
  weight.set_data(torch::zeros(shape, torch::TensorOptions(torch::kUInt8).device(device)));
}

torch::Tensor unpack_records(const RowEncoding& encoding, const torch::Tensor& records, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  if (!records.is_cpu()) return unpack_on_device(encoding, records, type);
  torch::Tensor values = torch::empty({records.size(0), encoding.columns}, records.options().dtype(type));
  if (values.numel() == 0) return values;
  const torch::Tensor scales = scales_of_records(encoding, records);
  const auto* scale = scales.const_data_ptr<float>();
  const auto* codes = records.const_data_ptr<std::uint8_t>() + encoding.scale_bytes();
  const std::int64_t bytes = encoding.record_bytes(), of_row = encoding.scales();
  const std::array<float, 16>& table = table_of(encoding.code);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "unpack_records", [&] {
    auto* value = values.data_ptr<scalar_t>();
    at::parallel_for(0, records.size(0), kRowsOfTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        unpack_row(encoding, codes + row * bytes, scale + row * of_row, table, value + row * encoding.columns);
    });
  });
  return values;
}

}  // namespace gantry
