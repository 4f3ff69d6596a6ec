#include "gantry/core/row_encoding.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "gantry/core/error.h"

namespace gantry {

namespace {

// The most blocks of scales that have a part of a range of a row's inputs. Rows begin at multiples of `inputs`.
std::int64_t runs_in(std::int64_t inputs, const Range& held) {
  constexpr std::int64_t kElements = kScaleBlock * kScalesOfBlock;
  if (held.size() == 0) return 0;
  // The latest start within a block is this much before its end.
  const std::int64_t step = std::gcd(kElements, inputs), first = step - held.begin % step;
  return 1 + (std::max<std::int64_t>(0, held.size() - first) + kElements - 1) / kElements;
}

}  // namespace

std::optional<WeightCode> weight_code(const std::string& name, bool is_double) {
  if (name.empty()) return std::nullopt;
  for (const WeightCode code :
       {WeightCode::kNf4, WeightCode::kFp4, WeightCode::kInt8, WeightCode::kFp8, WeightCode::kMxfp4})
    if (name == name_of(code)) {
      if (!is_double) return code;
      if (code == WeightCode::kNf4) return WeightCode::kNf4Double;
      if (code == WeightCode::kFp4) return WeightCode::kFp4Double;
      const bool is_int8 = code == WeightCode::kInt8;
      throw ConfigError({"model.quantize_double",
                         fmt::format("the scales of {} are not quantized, because {}", name,
                                     is_int8 ? "each row has one" : "they keep the form of the files"),
                         "model.quantize: nf4 or fp4", "remove the key"});
    }
  throw ConfigError({"model.quantize", "the value is '" + name + "'", "nf4, fp4, int8, fp8 or mxfp4", ""});
}

const char* name_of(WeightCode code) {
  switch (code) {
    case WeightCode::kInt8:
      return "int8";
    case WeightCode::kFp4:
    case WeightCode::kFp4Double:
      return "fp4";
    case WeightCode::kFp8:
      return "fp8";
    case WeightCode::kMxfp4:
      return "mxfp4";
    default:
      return "nf4";
  }
}

std::int64_t scale_block(WeightCode code) {
  if (code == WeightCode::kFp8) return kFp8Columns;
  return code == WeightCode::kMxfp4 ? kMxfp4Columns : kScaleBlock;
}

RowEncoding row_encoding(WeightCode code, std::int64_t inputs, const std::vector<Range>& held) {
  RowEncoding encoding{.code = code, .columns = 0, .group = std::gcd(scale_block(code), inputs)};
  for (const Range& range : held) {
    encoding.columns += range.size();
    encoding.group = std::gcd(encoding.group, std::gcd(range.begin, range.size()));
    if (is_double(code)) encoding.runs += runs_in(inputs, range);
  }
  if (code == WeightCode::kInt8) encoding.group = encoding.columns;
  return encoding;
}

}  // namespace gantry
