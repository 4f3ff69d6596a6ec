#include "gantry/checkpoint/format/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <set>

namespace gantry {
namespace {

constexpr std::uint64_t kBlock = 1 << 16;  // elements that are converted to numbers at a time
constexpr std::string_view kModelKind = "model/";

bool has_kinds(const TensorCatalog& catalog) { return catalog.manifest() != nullptr; }

ComparedNames names_of(const TensorCatalog& catalog, bool model_alone) {
  ComparedNames names;
  for (const auto& [key, tensor] : catalog.tensors()) {
    if (!model_alone || !has_kinds(catalog))
      names[key] = {key};
    else if (key.starts_with(kModelKind))
      names[key.substr(kModelKind.size())] = {key};
  }
  return names;
}

// Transposes a row-major matrix whose elements have `size` bytes.
std::vector<unsigned char> transpose(const std::vector<unsigned char>& bytes, std::uint64_t rows, std::uint64_t columns,
                                     std::uint64_t size) {
  std::vector<unsigned char> turned(bytes.size());
  for (std::uint64_t row = 0; row < rows; ++row)
    for (std::uint64_t column = 0; column < columns; ++column)
      std::memcpy(turned.data() + (column * rows + row) * size, bytes.data() + (row * columns + column) * size, size);
  return turned;
}

// The bytes of a slice of a full tensor.
std::vector<unsigned char> part_of(const std::vector<unsigned char>& full, const Slice& slice, std::int64_t size) {
  std::vector<unsigned char> part;
  visit_runs(slice, [&](std::int64_t first, std::int64_t count) {
    part.insert(part.end(), full.begin() + first * size, full.begin() + (first + count) * size);
  });
  return part;
}

std::vector<std::int64_t> shape_of(const TensorCatalog& catalog, const ComparedTensor& which) {
  std::vector<std::int64_t> shape = catalog.tensors().at(which.key).shape;
  if (!which.shards.empty()) {
    shape = apply_shards(shape, which.shards).shape;
    if (shape.size() > 1 && shape.front() == 1) shape.erase(shape.begin());
  }
  if (which.transposed) std::reverse(shape.begin(), shape.end());
  return shape;
}

std::vector<unsigned char> read(TensorCatalog& catalog, const ComparedTensor& which) {
  auto bytes = catalog.read(which.key);
  const ManifestTensor& tensor = catalog.tensors().at(which.key);
  if (!which.shards.empty()) return part_of(bytes, apply_shards(tensor.shape, which.shards), tensor.type->bits / 8);
  if (!which.transposed || tensor.shape.size() != 2) return bytes;
  return transpose(bytes, static_cast<std::uint64_t>(tensor.shape[0]), static_cast<std::uint64_t>(tensor.shape[1]),
                   static_cast<std::uint64_t>(tensor.type->bits) / 8);
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

// Integers that double cannot represent exactly.
bool is_wide_integer(const StoredType& type) { return type.name == "I64" || type.name == "U64"; }

// Compares in blocks, because converted numbers need more memory than the stored ones.
template <class Number>
void compare_values(const StoredType& a, const std::vector<unsigned char>& a_bytes, const StoredType& b,
                    const std::vector<unsigned char>& b_bytes, const std::vector<std::int64_t>& shape,
                    TensorDifference& result) {
  double scale = 0;
  std::uint64_t worst = 0;
  const std::uint64_t a_size = static_cast<std::uint64_t>(a.bits) / 8, b_size = static_cast<std::uint64_t>(b.bits) / 8;
  for (std::uint64_t begin = 0; begin < result.elements; begin += kBlock) {
    const std::uint64_t count = std::min(kBlock, result.elements - begin);
    const auto x = stored_values<Number>(a, std::span(a_bytes).subspan(begin * a_size, count * a_size));
    const auto y = stored_values<Number>(b, std::span(b_bytes).subspan(begin * b_size, count * b_size));
    if (!x || !y) {
      result.fault = fmt::format("the types {} and {} are not compared by value", a.readable, b.readable);
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
  result.at = index_of(worst, shape);
}

TensorDifference compare_one(TensorCatalog& a, const ComparedTensor& in_a, TensorCatalog& b,
                             const ComparedTensor& in_b) {
  const StoredType &x = *a.tensors().at(in_a.key).type, &y = *b.tensors().at(in_b.key).type;
  const auto shape = shape_of(a, in_a), other = shape_of(b, in_b);
  TensorDifference result;
  if (shape != other) {
    result.fault = fmt::format("the shapes are [{}] and [{}]", fmt::join(shape, ", "), fmt::join(other, ", "));
    return result;
  }
  result.elements = static_cast<std::uint64_t>(elements_of(shape));
  const auto x_bytes = read(a, in_a), y_bytes = read(b, in_b);
  if (&x == &y && x_bytes == y_bytes) return result;
  if (is_wide_integer(x) || is_wide_integer(y))
    compare_values<long double>(x, x_bytes, y, y_bytes, shape, result);
  else
    compare_values<double>(x, x_bytes, y, y_bytes, shape, result);
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
  return compare_tensors(a, names_of(a, model_alone), b, names_of(b, model_alone), progress);
}

std::vector<TensorDifference> compare_tensors(TensorCatalog& a, const ComparedNames& a_names, TensorCatalog& b,
                                              const ComparedNames& b_names, const ByteProgress& progress) {
  std::set<std::string> names;
  std::uint64_t all = 0, done = 0;
  for (const auto& [name, tensor] : a_names) names.insert(name), all += a.tensors().at(tensor.key).bytes();
  for (const auto& [name, tensor] : b_names) names.insert(name);
  std::vector<TensorDifference> differences;
  for (const auto& name : names) {
    const auto in_a = a_names.find(name), in_b = b_names.find(name);
    TensorDifference difference;
    if (in_a == a_names.end())
      difference.fault = "it is missing in " + a.path();
    else if (in_b == b_names.end())
      difference.fault = "it is missing in " + b.path();
    else
      difference = compare_one(a, in_a->second, b, in_b->second);
    difference.name = name;
    differences.push_back(std::move(difference));
    if (in_a != a_names.end()) done += a.tensors().at(in_a->second.key).bytes();
    if (progress) progress(done, all);
  }
  std::sort(differences.begin(), differences.end(), is_worse);
  return differences;
}

}  // namespace gantry
