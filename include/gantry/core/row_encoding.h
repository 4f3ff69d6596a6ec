// The format of frozen weights in 4 or 8 bits in memory (`model.quantize`). Each row of a weight [out, in] is one
// record of bytes: its scales, and then its codes. So a weight is a tensor [out, record bytes] of uint8, and ZeRO
// shards and gathers it by rows without decoding it. A stack of experts' weights is [experts, out, record bytes].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gantry/core/shard_spec.h"

namespace gantry {

// nf4, fp4: one scale per block of kScaleBlock elements, as in bitsandbytes (QLoRA, arXiv 2305.14314). The blocks are
// those of the full weight, flattened by rows. int8: one scale per row, as in LLM.int8() (arXiv 2208.07339).
// kNf4Double, kFp4Double: double quantization (`model.quantize_double`). A scale is a code of 8 bits, times a float32
// for each kScalesOfBlock scales, plus the mean of all scales of the weight.
// With kFp8, codes are float8_e4m3fn, with one float32 scale per block of rows and kFp8Columns columns (DeepSeek-V3).
// Each record has the scales of its row's blocks. With kMxfp4, which is for stacks of experts only, codes are
// float4_e2m1, and the scale of kMxfp4Columns inputs is the byte of a power of two (OCP Microscaling 1.0).
enum class WeightCode { kNf4, kFp4, kInt8, kNf4Double, kFp4Double, kFp8, kMxfp4 };

inline constexpr std::int64_t kScaleBlock = 64;
inline constexpr std::int64_t kScalesOfBlock = 256;
inline constexpr std::int64_t kFp8Columns = 128, kMxfp4Columns = 32;
// Neighbours in a row that share a scale in the averages of optimizer.name adamw8bit.
inline constexpr std::int64_t kAverageBlock = 256;

// Returns no value for an empty name (no quantisation). Throws ConfigError for an unknown name.
std::optional<WeightCode> weight_code(const std::string& name, bool is_double = false);
// nf4, fp4, int8, fp8 or mxfp4.
const char* name_of(WeightCode code);
inline bool is_double(WeightCode code) { return code == WeightCode::kNf4Double || code == WeightCode::kFp4Double; }
// Whether a code has 8 bits; others have 4.
inline bool is_byte(WeightCode code) { return code == WeightCode::kInt8 || code == WeightCode::kFp8; }
// The weights that model.quantize encodes: those of linear layers, and stacks of experts.
inline bool encodes_linear(WeightCode code) { return code != WeightCode::kMxfp4; }
inline bool encodes_experts(WeightCode code) { return code == WeightCode::kFp8 || code == WeightCode::kMxfp4; }
// The most neighbouring columns of a row that share a scale; for int8 all of them do.
std::int64_t scale_block(WeightCode code);

// The record of a row of which a rank holds `columns` inputs. `group`: number of neighbouring inputs that share a
// scale. It divides `columns`; for int8 it is equal to it. `runs`: with double quantization, the most blocks of scales
// that the row has a part of. A record then begins with the mean (float32), the factor of each run (float32), the
// inputs at which the runs end except the last one (int32), and the codes of the scales.
struct RowEncoding {
  WeightCode code = WeightCode::kNf4;
  std::int64_t columns = 0, group = 0, runs = 0;

  std::int64_t scales() const { return group == 0 ? 0 : columns / group; }
  std::int64_t scale_bytes() const {
    if (code == WeightCode::kMxfp4) return scales();
    return is_double(code) ? 8 * runs + scales() : 4 * scales();
  }
  std::int64_t code_bytes() const { return is_byte(code) ? columns : (columns + 1) / 2; }
  std::int64_t record_bytes() const { return scale_bytes() + code_bytes(); }
};

// The encoding of a rank that holds these ranges of the inputs of a weight with `inputs` inputs. If block boundaries
// do not coincide with those of rows and ranges, a group is smaller than a block.
RowEncoding row_encoding(WeightCode code, std::int64_t inputs, const std::vector<Range>& held);

}  // namespace gantry
