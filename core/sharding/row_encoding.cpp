#include "gantry/core/row_encoding.h"

#include <algorithm>
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
  for (const WeightCode code : {WeightCode::kNf4, WeightCode::kFp4, WeightCode::kInt8})
    if (name == name_of(code)) {
      if (!is_double) return code;
      if (code != WeightCode::kInt8) return code == WeightCode::kNf4 ? WeightCode::kNf4Double : WeightCode::kFp4Double;
      throw ConfigError({"model.quantize_double", "the scales of int8 are not quantized, because each row has one",
                         "model.quantize: nf4 or fp4", "remove the key"});
    }
  throw ConfigError({"model.quantize", "the value is '" + name + "'", "nf4, fp4 or int8", ""});
}

const char* name_of(WeightCode code) {
  switch (code) {
    case WeightCode::kInt8:
      return "int8";
    case WeightCode::kFp4:
    case WeightCode::kFp4Double:
      return "fp4";
    default:
      return "nf4";
  }
}

RowEncoding row_encoding(WeightCode code, std::int64_t inputs, const std::vector<Range>& held) {
  RowEncoding encoding{.code = code, .columns = 0, .group = std::gcd(kScaleBlock, inputs)};
  for (const Range& range : held) {
    encoding.columns += range.size();
    encoding.group = std::gcd(encoding.group, std::gcd(range.begin, range.size()));
    if (is_double(code)) encoding.runs += runs_in(inputs, range);
  }
  if (code == WeightCode::kInt8) encoding.group = encoding.columns;
  return encoding;
}

}  // namespace gantry
