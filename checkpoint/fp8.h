// Weights of eight bits with scales, as in the files of DeepSeek-V3 and of Qwen3's FP8 versions.
#pragma once

#include <memory>

#include "gantry/checkpoint/encoded_tensor.h"

namespace gantry {

// Suffixes of the weight's name. The first one, in spite of its name, is also a factor of the stored values.
inline constexpr const char *kFp8Scale = "_scale_inv", *kFp8PlainScale = "_scale";
inline constexpr std::int64_t kFp8Block = 128;

// The size of a block in rows and columns; one scale belongs to each block.
struct Fp8Block {
  std::int64_t rows = kFp8Block, columns = kFp8Block;
};

// A weight [rows, columns] or a stack [experts, rows, columns]. The scales have one number for each block (fewer rows
// or columns in the last ones), for each row, for each expert, or for all. `block`: that of the model's configuration.
std::unique_ptr<EncodedTensor> fp8_tensor(TensorPlace values, TensorPlace scales, const Fp8Block& block);

}  // namespace gantry
