// Weights of four bits with scales, as bitsandbytes stores them: NF4 and FP4, with one or two levels of scales (QLoRA,
// arXiv 2305.14314).
#pragma once

#include <memory>
#include <optional>

#include "gantry/checkpoint/encoded_tensor.h"

namespace gantry {

// Suffixes of the names of the tensors that belong to a weight. The quantisation state is a JSON object in
// bytes.
inline constexpr const char *kFourBitScales = ".absmax", *kFourBitTable = ".quant_map",
                            *kFourBitNestedScales = ".nested_absmax", *kFourBitNestedTable = ".nested_quant_map",
                            *kNf4State = ".quant_state.bitsandbytes__nf4",
                            *kFp4State = ".quant_state.bitsandbytes__fp4";

// The number of blocks, the last of which may be short.
inline std::int64_t full_blocks(std::int64_t size, std::int64_t block) { return size / block + (size % block != 0); }

struct FourBitPlaces {
  WeightCode code;
  TensorPlace codes;   // two codes in a byte, the first one in its high half; the weight is flattened by rows
  TensorPlace state;   // shape and element type of the weight, and sizes of the blocks
  TensorPlace scales;  // one for each block of the flattened weight
  TensorPlace table;   // the 16 values of the codes
  std::optional<TensorPlace> nested_scales, nested_table;  // present if the scales are codes of eight bits
};

// A weight [rows, columns]. Throws InputError if the state is not valid, or the other tensors do not have the shapes
// that follow from it.
std::unique_ptr<EncodedTensor> four_bit_tensor(FourBitPlaces places);

}  // namespace gantry
