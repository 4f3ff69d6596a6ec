#include "gantry/core/row_encoding.h"

#include <numeric>

#include "gantry/core/error.h"

namespace gantry {

std::optional<WeightCode> weight_code(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const WeightCode code : {WeightCode::kNf4, WeightCode::kFp4, WeightCode::kInt8})
    if (name == name_of(code)) return code;
  throw ConfigError({"model.quantize", "the value is '" + name + "'", "nf4, fp4 or int8", ""});
}

const char* name_of(WeightCode code) {
  return code == WeightCode::kNf4 ? "nf4" : code == WeightCode::kFp4 ? "fp4" : "int8";
}

RowEncoding row_encoding(WeightCode code, std::int64_t inputs, const std::vector<Range>& held) {
  RowEncoding encoding{.code = code, .columns = 0, .group = std::gcd(kScaleBlock, inputs)};
  for (const Range& range : held) {
    encoding.columns += range.size();
    encoding.group = std::gcd(encoding.group, std::gcd(range.begin, range.size()));
  }
  if (code == WeightCode::kInt8) encoding.group = encoding.columns;
  return encoding;
}

}  // namespace gantry
