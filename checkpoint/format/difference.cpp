#include "gantry/checkpoint/format/difference.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <set>

namespace gantry {
namespace {

constexpr std::uint64_t kBlock = 1 << 16;  // elements that are turned into numbers at a time
constexpr std::string_view kModelKind = "model/";

bool has_kinds(const TensorCatalog& catalog) { return catalog.manifest() != nullptr; }

// The names to compare by, each with the catalog's own key.
std::map<std::string, std::string> names_of(const TensorCatalog& catalog, bool model_alone) {
  std::map<std::string, std::string> names;
  for (const auto& [key, tensor] : catalog.tensors()) {
    if (!model_alone || !has_kinds(catalog))
      names[key] = key;
    else if (key.starts_with(kModelKind))
      names[key.substr(kModelKind.size())] = key;
  }
  return names;
}

std::vector<std::int64_t> index_of(std::uint64_t flat, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = static_cast<std::int64_t>(flat) % shape[dim];
    flat /= static_cast<std::uint64_t>(shape[dim]);
  }
  return index;
}

template <class Number>
double difference_of(Number a, Number b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const auto difference = static_cast<double>(std::abs(a - b));
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

// Whole numbers that double does not hold.
bool is_wide_integer(const StoredType& type) { return type.name == "I64" || type.name == "U64"; }

// Block by block: numbers take more room than what is stored.
template <class Number>
void compare_values(const ManifestTensor& a, const std::vector<unsigned char>& a_bytes, const ManifestTensor& b,
                    const std::vector<unsigned char>& b_bytes, TensorDifference& result) {
  double scale = 0;
  std::uint64_t worst = 0;
  const std::uint64_t a_size = static_cast<std::uint64_t>(a.type->bits) / 8,
                      b_size = static_cast<std::uint64_t>(b.type->bits) / 8;
  for (std::uint64_t begin = 0; begin < result.elements; begin += kBlock) {
    const std::uint64_t count = std::min(kBlock, result.elements - begin);
    const auto x = stored_values<Number>(*a.type, std::span(a_bytes).subspan(begin * a_size, count * a_size));
    const auto y = stored_values<Number>(*b.type, std::span(b_bytes).subspan(begin * b_size, count * b_size));
    if (!x || !y) {
      result.fault = fmt::format("is {} and {}, which are not compared by value", a.type->readable, b.type->readable);
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::isfinite((*x)[i])) scale = std::max(scale, static_cast<double>(std::abs((*x)[i])));
      const double difference = difference_of((*x)[i], (*y)[i]);
      if (difference == 0) continue;
      ++result.different;
      if (difference > result.largest) result.largest = difference, worst = begin + i;
    }
  }
  if (result.different == 0) return;
  result.relative = scale > 0 ? result.largest / scale : std::numeric_limits<double>::infinity();
  result.at = index_of(worst, a.shape);
}

TensorDifference compare_one(TensorCatalog& a, const std::string& a_key, TensorCatalog& b, const std::string& b_key) {
  const ManifestTensor &x = a.tensors().at(a_key), &y = b.tensors().at(b_key);
  TensorDifference result;
  if (x.shape != y.shape) {
    result.fault = fmt::format("is [{}] and [{}]", fmt::join(x.shape, ", "), fmt::join(y.shape, ", "));
    return result;
  }
  result.elements = x.bytes() * 8 / static_cast<std::uint64_t>(x.type->bits);
  const auto x_bytes = a.read(a_key), y_bytes = b.read(b_key);
  if (x.type == y.type && x_bytes == y_bytes) return result;
  if (is_wide_integer(*x.type) || is_wide_integer(*y.type))
    compare_values<long double>(x, x_bytes, y, y_bytes, result);
  else
    compare_values<double>(x, x_bytes, y, y_bytes, result);
  return result;
}

bool is_worse(const TensorDifference& a, const TensorDifference& b) {
  if (a.fault.empty() != b.fault.empty()) return !a.fault.empty();
  if (a.relative != b.relative) return a.relative > b.relative;
  return a.name < b.name;
}

}  // namespace

std::vector<TensorDifference> compare_tensors(TensorCatalog& a, TensorCatalog& b, const ByteProgress& progress) {
  const bool model_alone = has_kinds(a) != has_kinds(b);
  const auto a_names = names_of(a, model_alone), b_names = names_of(b, model_alone);
  std::set<std::string> names;
  std::uint64_t all = 0, done = 0;
  for (const auto& [name, key] : a_names) names.insert(name), all += a.tensors().at(key).bytes();
  for (const auto& [name, key] : b_names) names.insert(name);
  std::vector<TensorDifference> differences;
  for (const auto& name : names) {
    const auto in_a = a_names.find(name), in_b = b_names.find(name);
    TensorDifference difference;
    if (in_a == a_names.end())
      difference.fault = "is missing in " + a.path();
    else if (in_b == b_names.end())
      difference.fault = "is missing in " + b.path();
    else
      difference = compare_one(a, in_a->second, b, in_b->second);
    difference.name = name;
    differences.push_back(std::move(difference));
    if (in_a != a_names.end()) done += a.tensors().at(in_a->second).bytes();
    if (progress) progress(done, all);
  }
  std::sort(differences.begin(), differences.end(), is_worse);
  return differences;
}

}  // namespace gantry
