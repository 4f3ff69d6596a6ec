#include "gantry/data/scalar_type.h"

#include <fmt/format.h>
#include <iterator>

#include "gantry/tensors/libtorch.h"

namespace gantry {

namespace {

// In the order of kNumberTypes.
constexpr torch::ScalarType kScalarTypes[] = {torch::kBool,    torch::kUInt8,  torch::kInt8,    torch::kInt16,
                                              torch::kInt32,   torch::kInt64,  torch::kFloat16, torch::kBFloat16,
                                              torch::kFloat32, torch::kFloat64};
static_assert(std::size(kScalarTypes) == std::size(kNumberTypes));

}  // namespace

torch::ScalarType scalar_type_of(NumberType type) { return kScalarTypes[static_cast<std::size_t>(type)]; }

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
