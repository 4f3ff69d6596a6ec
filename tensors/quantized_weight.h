// Weights in 4 or 8 bits: codes and scales of a weight, their records in memory (core/row_encoding.h), and the values
// of records. On all devices.
#pragma once

#include "gantry/core/row_encoding.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// By element of a weight [rows, columns], so that a rank takes its part of all in the same way.
struct CodedWeight {
  torch::Tensor codes;   // uint8; of 4-bit codes one in each byte; of int8 and fp8 the bits of the number
  torch::Tensor scales;  // float32; with double quantization the factors of the scales (tensors/double_scales.h).
                         // mxfp4: the biased exponents as uint8 (float8_e8m0fnu)
  torch::Tensor scale_codes = {}, means = {};  // uint8 and float32; defined with double quantization only
};

// Returns the nearest codes of a full weight [out, in], or of a stack [experts, out, in], of real numbers. fp8: the
// scale of a block of kFp8Columns rows and columns is its largest magnitude / 448. Throws InternalError for mxfp4,
// whose codes come from files only.
CodedWeight quantize(WeightCode code, const torch::Tensor& weight);

// The same operation for each tensor of a weight.
template <class Operation>
CodedWeight for_each(const CodedWeight& weight, const Operation& operation) {
  const auto change = [&](const torch::Tensor& tensor) { return tensor.defined() ? operation(tensor) : tensor; };
  return {change(weight.codes), change(weight.scales), change(weight.scale_codes), change(weight.means)};
}

// The float32 values, of the same shape.
torch::Tensor values_of(WeightCode code, const CodedWeight& weight);

// The values of a code of 4 bits (16) or of fp8 (256), float32.
torch::Tensor code_values(WeightCode code);

// Whether the record of a row can have these scales: those of a group are equal, and with double quantization there are
// at most encoding.runs different neighbouring factors, and one mean.
bool has_scales_of(const RowEncoding& encoding, const CodedWeight& weight);
// The records of such a local weight, uint8 [rows, encoding.record_bytes()].
torch::Tensor pack_records(const RowEncoding& encoding, const CodedWeight& weight);
// Whether a parameter is the records of a weight.
inline bool has_records(const torch::Tensor& parameter) { return parameter.scalar_type() == torch::kByte; }
// Replaces the memory of a weight [..., columns], deferred or not, by records of zeros on `device`.
void make_records(torch::Tensor& weight, std::int64_t record_bytes, torch::Device device);
// The values of records [rows, bytes], as [rows, encoding.columns] of `type`. Each one is rounded once, from float32.
torch::Tensor unpack_records(const RowEncoding& encoding, const torch::Tensor& records, torch::ScalarType type);

}  // namespace gantry
