#include "gantry/core/slice.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/core/sharding/box_cover.h"

namespace gantry {
namespace {

std::int64_t size_of(const std::vector<Range>& ranges) {
  std::int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

// The part `wanted` of the concatenated ranges, as ranges of the dim.
std::vector<Range> part_of(const std::vector<Range>& ranges, const Range& wanted) {
  std::vector<Range> part;
  std::int64_t offset = 0;
  for (const Range& range : ranges) {
    const std::int64_t begin = std::max(wanted.begin, offset), end = std::min(wanted.end, offset + range.size());
    if (begin < end) part.push_back({range.begin + begin - offset, range.begin + end - offset});
    offset += range.size();
  }
  return part;
}

Box with_dim(Box box, std::size_t dim, const Range& wanted) {
  box.dims[dim] = part_of(box.dims[dim], wanted);
  return box;
}

// The elements `wanted` of the box's memory, from `dim` on, as boxes: the rest of the first row, full rows, and the
// beginning of the last row, recursively for each dim.
void add_elements(const Box& box, std::size_t dim, const Range& wanted, std::vector<Box>& boxes) {
  if (wanted.size() <= 0) return;
  if (dim == box.dims.size()) return boxes.push_back(box);
  std::int64_t inner = 1;
  for (std::size_t i = dim + 1; i < box.dims.size(); ++i) inner *= size_of(box.dims[i]);
  const auto add_part_of_row = [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    add_elements(with_dim(box, dim, {row, row + 1}), dim + 1, {begin - row * inner, end - row * inner}, boxes);
  };
  std::int64_t begin = wanted.begin;
  if (const std::int64_t row = begin / inner; begin % inner != 0) {
    const std::int64_t end = std::min(wanted.end, (row + 1) * inner);
    add_part_of_row(row, begin, end);
    begin = end;
  }
  const std::int64_t rows_end = std::max(begin, wanted.end / inner * inner);
  if (begin < rows_end) boxes.push_back(with_dim(box, dim, {begin / inner, rows_end / inner}));
  if (rows_end < wanted.end) add_part_of_row(wanted.end / inner, rows_end, wanted.end);
}

[[noreturn]] void refuse_range(const Range& range, std::int64_t extent) {
  throw ConfigError({"", fmt::format("the slice has the range {} to {}", range.begin, range.end),
                     fmt::format("two counts within 0 to {}", extent), ""});
}

void check_ranges(const std::vector<Range>& ranges, std::int64_t extent) {
  std::int64_t size = 0;
  for (const Range& range : ranges) {
    if (range.begin < 0 || range.begin > range.end || range.end > extent) refuse_range(range, extent);
    size += range.size();
    if (size > extent)
      throw ConfigError(
          {"", fmt::format("the slice has ranges of more than {} elements", extent), "each element at most once", ""});
  }
}

void narrow_dim(Slice& slice, const AppliedShard& shard) {
  constexpr auto kExpected = "an existing dim of the tensor";
  if (slice.flat || shard.dim < 0 || shard.dim >= static_cast<int>(slice.shape.size()))
    throw ConfigError({"", fmt::format("the slice is along dim {}", shard.dim), kExpected, ""});
  check_ranges(shard.ranges, slice.shape[shard.dim]);
  auto& ranges = slice.boxes.front().dims[shard.dim];
  std::vector<Range> left;
  for (const Range& range : shard.ranges)
    for (const Range& part : part_of(ranges, range)) left.push_back(part);
  ranges = std::move(left);
  slice.shape[shard.dim] = size_of(ranges);
}

void narrow_rows(Slice& slice, const AppliedShard& shard) {
  constexpr std::size_t kMostPieces = 10'000'000;  // number of boxes; only hostile files have more
  const std::int64_t elements = slice.elements();
  if (shard.row < 1 || elements % shard.row != 0)
    throw ConfigError(
        {"", fmt::format("the local tensor has {} elements in rows of {}", elements, shard.row), "full rows", ""});
  check_ranges(shard.ranges, elements / shard.row);
  if (shard.ranges.size() * slice.boxes.size() > kMostPieces)
    throw ConfigError({"", fmt::format("the slice has {} ranges of rows", shard.ranges.size()), "fewer", ""});
  std::vector<Box> left;
  std::int64_t rows = 0;
  for (const Range& range : shard.ranges) {
    rows += range.size();
    std::int64_t offset = 0;
    for (const Box& box : slice.boxes) {
      const std::int64_t size = elements_of(box.shape());
      add_elements(
          box, 0,
          {std::max<std::int64_t>(range.begin * shard.row - offset, 0), std::min(range.end * shard.row - offset, size)},
          left);
      offset += size;
    }
  }
  slice.boxes = std::move(left);
  slice.shape = {rows, shard.row};
  slice.flat = true;
}

// One run of elements that two lists of ranges have in common, with its begin in each concatenated list.
struct Overlap {
  std::int64_t in_first, in_second, size;
};

std::vector<Overlap> overlaps(const std::vector<Range>& first, const std::vector<Range>& second) {
  std::vector<Overlap> common;
  std::int64_t first_offset = 0;
  for (const Range& a : first) {
    std::int64_t second_offset = 0;
    for (const Range& b : second) {
      const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
      if (begin < end) common.push_back({first_offset + begin - a.begin, second_offset + begin - b.begin, end - begin});
      second_offset += b.size();
    }
    first_offset += a.size();
  }
  return common;
}

// From `dim` on; `begin` is the first element for the indices of the previous dims.
void visit_box_runs(const Box& box, const Shape& global, std::size_t dim, std::size_t last, std::int64_t begin,
                    const std::function<void(std::int64_t, std::int64_t)>& take) {
  std::int64_t inner = 1;
  for (std::size_t i = dim + 1; i < global.size(); ++i) inner *= global[i];
  if (dim >= last) {
    if (global.empty()) return take(begin, 1);
    for (const Range& range : box.dims[dim])
      if (range.size() > 0) take(begin + range.begin * inner, range.size() * inner);
    return;
  }
  for (const Range& range : box.dims[dim])
    for (std::int64_t index = range.begin; index < range.end; ++index)
      visit_box_runs(box, global, dim + 1, last, begin + index * inner, take);
}

}  // namespace

std::int64_t elements_of(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

Shape Box::shape() const {
  Shape shape;
  for (const auto& ranges : dims) shape.push_back(size_of(ranges));
  return shape;
}

Slice full_slice(const Shape& global) {
  Box box;
  for (const std::int64_t extent : global) box.dims.push_back({{0, extent}});
  return {.global = global, .shape = global, .boxes = {std::move(box)}};
}

Slice apply_shards(const Shape& global, const std::vector<AppliedShard>& shards) {
  constexpr std::size_t kMostDims = 64;  // LibTorch's limit as well
  if (!shards.empty() && global.size() > kMostDims)
    throw ConfigError(
        {"", fmt::format("the tensor has {} dims", global.size()), fmt::format("at most {}", kMostDims), ""});
  Slice slice = full_slice(global);
  for (const AppliedShard& shard : shards) shard.row > 0 ? narrow_rows(slice, shard) : narrow_dim(slice, shard);
  return slice;
}

void common_blocks(const Box& first, const Box& second, const std::function<void(const Block&, const Block&)>& take) {
  std::vector<std::vector<Overlap>> common;
  for (std::size_t dim = 0; dim < first.dims.size(); ++dim) {
    common.push_back(overlaps(first.dims[dim], second.dims[dim]));
    if (common.back().empty()) return;
  }
  std::vector<std::size_t> choice(common.size(), 0);  // one overlap for each dim, counted like digits
  for (bool more = true; more;) {
    Block a, b;
    for (std::size_t dim = 0; dim < common.size(); ++dim) {
      const Overlap& overlap = common[dim][choice[dim]];
      a.begin.push_back(overlap.in_first);
      b.begin.push_back(overlap.in_second);
      a.size.push_back(overlap.size);
    }
    b.size = a.size;
    take(a, b);
    more = false;
    for (std::size_t dim = common.size(); dim-- > 0 && !more;) {
      more = ++choice[dim] < common[dim].size();
      if (!more) choice[dim] = 0;
    }
  }
}

bool have_common(const Slice& first, const Slice& second) {
  for (const Box& a : first.boxes)
    for (const Box& b : second.boxes) {
      bool meet = true;
      for (std::size_t dim = 0; dim < a.dims.size() && meet; ++dim) meet = !overlaps(a.dims[dim], b.dims[dim]).empty();
      if (meet) return true;
    }
  return false;
}

void visit_runs(const Slice& slice, const std::function<void(std::int64_t, std::int64_t)>& take) {
  for (const Box& box : slice.boxes) {
    std::size_t last = 0;  // the last dim that is not full
    for (std::size_t dim = 0; dim < box.dims.size(); ++dim)
      if (box.dims[dim] != std::vector<Range>{{0, slice.global[dim]}}) last = dim;
    visit_box_runs(box, slice.global, 0, last, 0, take);
  }
}

Covering covering_of(const Shape& global, const std::vector<Slice>& slices) {
  std::vector<const Box*> boxes;
  for (const Slice& slice : slices)
    if (slice.elements() > 0)
      for (const Box& box : slice.boxes) boxes.push_back(&box);
  return BoxCover(global).of(boxes);
}

}  // namespace gantry
