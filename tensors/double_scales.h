// Double quantization (QLoRA, arXiv 2305.14314) as in bitsandbytes: the scales of a weight in 4 bits, minus their mean,
// are codes of 8 bits with a factor for each kScalesOfBlock of them. On all devices.
#pragma once

#include "gantry/core/row_encoding.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

struct DoubleScales {
  torch::Tensor codes;    // uint8: indices of values of scale_table()
  torch::Tensor factors;  // float32
  torch::Tensor means;    // float32
};

// The 256 values of the codes, float32, with the roundings of bitsandbytes' create_dynamic_map().
const torch::Tensor& scale_table();

// Encodes the scales [n] of a weight. Returns codes [n], a factor for each block, and one mean [1].
DoubleScales encode_scales(const torch::Tensor& scales);

// table[code] factor + mean, in float32 and in two operations, as bitsandbytes rounds. The shapes are those of a sum.
torch::Tensor decode_scales(const DoubleScales& scales);

// The bytes of the scales in records, [rows, encoding.scale_bytes()]. `scales`: each [rows, encoding.scales()], with
// one mean for each row, and at most encoding.runs different neighbouring factors.
torch::Tensor pack_double_scales(const RowEncoding& encoding, const DoubleScales& scales);
// The number of runs of equal neighbouring factors [rows, scales] in the row that has most of them.
std::int64_t most_runs(const torch::Tensor& factors);
// The scales [rows, encoding.scales()] of such bytes, float32.
torch::Tensor unpack_double_scales(const RowEncoding& encoding, const torch::Tensor& bytes);

}  // namespace gantry
