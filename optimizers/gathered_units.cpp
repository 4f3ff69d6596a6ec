#include "gantry/optimizers/gathered_units.h"

#include <algorithm>
#include <numeric>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

std::vector<std::string> sorted_axes(const Placement& placement) {
  auto axes = placement.sharded_axes();
  std::sort(axes.begin(), axes.end());
  return axes;
}

bool divides_units(const ShardSpec& shard, std::int64_t dims, std::int64_t row, OptimizerUnit unit) {
  if (!shard.sharded()) return false;
  // A rank holds rows as a matrix [rows, row] (ZeRO 3), also if it has all of them.
  if (shard.row > 0) return unit == OptimizerUnit::kMatrix || (shard.ranks() > 1 && shard.row % row != 0);
  if (shard.ranks() == 1) return false;
  const std::int64_t dims_of_unit = unit == OptimizerUnit::kRow ? 1 : 2;
  return shard.dim >= dims - dims_of_unit;
}

// Converts slices to numbers and back. The ranges of a shard depend on the coordinates of its rank, so ranks
// exchange them.
void append(std::vector<std::int64_t>& numbers, const std::vector<AppliedShard>& shards) {
  numbers.push_back(static_cast<std::int64_t>(shards.size()));
  for (const AppliedShard& shard : shards) {
    numbers.insert(numbers.end(), {shard.dim, shard.row, static_cast<std::int64_t>(shard.ranges.size())});
    for (const Range& range : shard.ranges) numbers.insert(numbers.end(), {range.begin, range.end});
  }
}

std::vector<AppliedShard> next_shards(const std::int64_t*& number) {
  std::vector<AppliedShard> shards(static_cast<std::size_t>(*number++));
  for (AppliedShard& shard : shards) {
    shard.dim = static_cast<int>(*number++);
    shard.row = *number++;
    shard.ranges.resize(static_cast<std::size_t>(*number++));
    for (Range& range : shard.ranges) {
      range.begin = *number++;
      range.end = *number++;
    }
  }
  return shards;
}

std::int64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

torch::Tensor joined(const std::vector<torch::Tensor>& pieces, const torch::TensorOptions& options) {
  return pieces.empty() ? torch::empty({0}, options) : torch::cat(pieces);
}

}  // namespace

bool divides_units(const Placement& placement, OptimizerUnit unit) {
  if (unit == OptimizerUnit::kElement) return false;
  const auto& shape = placement.global_shape;
  return std::any_of(placement.shards.begin(), placement.shards.end(), [&](const ShardSpec& shard) {
    return divides_units(shard, static_cast<std::int64_t>(shape.size()), shape.empty() ? 1 : shape.back(), unit);
  });
}

std::size_t GatheredUnits::add(std::vector<Item> items) {
  const std::size_t first = items_.size();
  for (Item& item : items) {
    auto axes = sorted_axes(item.placement);
    items_.push_back({.item = std::move(item), .group = &mesh_.group(axes), .holder = 0, .parts = {}});
  }
  std::map<std::vector<std::string>, std::vector<Known*>> added;
  for (std::size_t i = first; i < items_.size(); ++i)
    added[sorted_axes(items_[i].item.placement)].push_back(&items_[i]);
  for (auto& [axes, known] : added) {
    learn_parts(*known.front()->group, known);
    // Assign the largest item first, each to the rank with the least work.
    std::stable_sort(known.begin(), known.end(),
                     [](const Known* one, const Known* other) { return one->item.work > other->item.work; });
    auto& work = work_[axes];
    work.resize(static_cast<std::size_t>(known.front()->group->size()));
    for (Known* each : known) {
      const auto least = std::min_element(work.begin(), work.end());
      each->holder = static_cast<int>(least - work.begin());
      *least += each->item.work;
    }
  }
  return first;
}

void GatheredUnits::learn_parts(ProcessGroup& group, const std::vector<Known*>& items) const {
  std::vector<std::int64_t> mine;
  for (const Known* each : items) append(mine, held_shards(each->item.placement, mesh_.coordinates()));
  const Sizes sizes = all_gather_numbers(group, static_cast<std::int64_t>(mine.size()));
  torch::Tensor all = torch::empty({sum(sizes)}, torch::kInt64);
  group.all_gather(all, torch::tensor(mine, torch::kInt64), sizes).wait();
  const std::int64_t* number = all.const_data_ptr<std::int64_t>();
  for (int rank = 0; rank < group.size(); ++rank)
    for (Known* each : items)
      each->parts.push_back(apply_shards(each->item.placement.global_shape, next_shards(number)));
}

bool GatheredUnits::held_here(std::size_t item) const { return items_[item].holder == items_[item].group->rank(); }

Placement GatheredUnits::held_placement(std::size_t item) const {
  const Known& known = items_[item];
  Placement placement = known.item.placement;
  ShardSpec shard = replicate();
  const auto axes = placement.sharded_axes();
  for (const auto& axis : mesh_.mesh().axes(placement.view))  // outermost first, like the ranks of the group
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) shard.axes.push_back(axis);
  shard.dim = 0;
  const std::int64_t rows = placement.global_shape.front();
  Segment segment{{0, rows}, std::vector<Range>(static_cast<std::size_t>(known.group->size()), Range{0, 0})};
  segment.range_of_rank[static_cast<std::size_t>(known.holder)] = {0, rows};
  shard.segments = {std::move(segment)};
  placement.shards = {std::move(shard)};
  return placement;
}

// Items of the same group and type are exchanged by one all-to-all.
void GatheredUnits::exchange(const std::vector<Move>& moves, const Exchange& how) const {
  const torch::NoGradGuard no_grad;
  std::map<std::pair<std::vector<std::string>, torch::ScalarType>, std::vector<const Move*>> kinds;
  for (const Move& move : moves) {
    const Item& item = items_[move.item].item;
    kinds[{sorted_axes(item.placement), item.dtype}].push_back(&move);
  }
  for (const auto& [kind, same] : kinds) {
    ProcessGroup& group = *items_[same.front()->item].group;
    Sizes sent(static_cast<std::size_t>(group.size())), expected(sent);
    std::vector<torch::Tensor> pieces;
    for (int rank = 0; rank < group.size(); ++rank)
      for (const Move* move : same) {
        expected[rank] += how.expected(*move, rank);
        const torch::Tensor piece = how.sent(*move, rank);
        if (!piece.defined()) continue;
        pieces.push_back(piece.reshape({-1}).to(kind.second));
        sent[rank] += piece.numel();
      }
    const auto options = same.front()->part.options().dtype(kind.second).requires_grad(false);
    torch::Tensor arrived = torch::empty({sum(expected)}, options);
    group.all_to_all(arrived, joined(pieces, options), expected, sent).wait();
    std::int64_t offset = 0;
    for (int rank = 0; rank < group.size(); ++rank)
      for (const Move* move : same) {
        const std::int64_t count = how.expected(*move, rank);
        if (count > 0) how.take(*move, rank, arrived.narrow(0, offset, count));
        offset += count;
      }
  }
}

void GatheredUnits::bring_together(const std::vector<Move>& moves) const {
  exchange(moves,
           {.sent = [&](const Move& move,
                        int rank) { return items_[move.item].holder == rank ? move.part : torch::Tensor(); },
            .expected = [&](const Move& move,
                            int rank) { return held_here(move.item) ? items_[move.item].parts[rank].elements() : 0; },
            .take =
                [&](const Move& move, int rank, const torch::Tensor& arrived) {
                  const Slice& part = items_[move.item].parts[rank];
                  copy_common(move.full, full_slice(part.global), arrived.view(part.shape), part);
                }});
}

void GatheredUnits::hand_out(const std::vector<Move>& moves) const {
  exchange(
      moves,
      {.sent =
           [&](const Move& move, int rank) {
             return held_here(move.item) ? take_slice(move.full.detach(), items_[move.item].parts[rank])
                                         : torch::Tensor();
           },
       .expected = [&](const Move& move, int rank) { return items_[move.item].holder == rank ? move.part.numel() : 0; },
       .take = [](const Move& move, int,
                  const torch::Tensor& arrived) { torch::Tensor(move.part).copy_(arrived.view_as(move.part)); }});
}

}  // namespace gantry
