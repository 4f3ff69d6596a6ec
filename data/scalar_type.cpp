#include "gantry/data/scalar_type.h"

#include <fmt/format.h>

#include <torch/torch.h>

namespace gantry {

torch::ScalarType scalar_type_of(NumberType type) {
  switch (type) {
    case NumberType::kBool:
      return torch::kBool;
    case NumberType::kUint8:
      return torch::kUInt8;
    case NumberType::kInt8:
      return torch::kInt8;
    case NumberType::kInt16:
      return torch::kInt16;
    case NumberType::kInt32:
      return torch::kInt32;
    case NumberType::kInt64:
      return torch::kInt64;
    case NumberType::kFloat16:
      return torch::kFloat16;
    case NumberType::kBfloat16:
      return torch::kBFloat16;
    case NumberType::kFloat32:
      return torch::kFloat32;
    case NumberType::kFloat64:
      return torch::kFloat64;
  }
  return torch::kInt64;
}

std::optional<NumberType> number_type_of(torch::ScalarType type) {
  for (const auto& facts : kNumberTypes)
    if (scalar_type_of(facts.type) == type) return facts.type;
  return std::nullopt;
}

std::string number_type_names() {
  std::string names;
  for (const auto& facts : kNumberTypes) names += fmt::format("{}{}", names.empty() ? "" : ", ", facts.name);
  return names;
}

}  // namespace gantry
