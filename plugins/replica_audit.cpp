#include "gantry/plugins/replica_audit.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <xxhash.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

std::int64_t hash_of(const torch::Tensor& tensor) {
  const torch::Tensor bytes = tensor.detach().contiguous().cpu();
  return static_cast<std::int64_t>(XXH3_64bits(bytes.data_ptr(), bytes.nbytes()));
}

// A compared value: a name for the error, and a number that is equal on equal replicas.
struct Item {
  std::string what;
  std::int64_t hash = 0;
};

// A place where replicas differ.
struct Difference {
  std::string what;
  std::vector<int> ranks;  // ranks of the group that differ from its rank 0
};

// All members pass items with the same names, and get the same result.
std::optional<Difference> first_difference(ProcessGroup& group, const std::vector<Item>& items) {
  if (group.size() == 1 || items.empty()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(items.size());
  torch::Tensor mine = torch::empty({1, count}, torch::kInt64),
                all = torch::empty({group.size(), count}, torch::kInt64);
  for (std::int64_t i = 0; i < count; ++i) mine.data_ptr<std::int64_t>()[i] = items[i].hash;
  group.all_gather(all, mine, Sizes(group.size(), 1)).wait();
  const auto* hashes = all.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    Difference difference{items[i].what, {}};
    for (int rank = 1; rank < group.size(); ++rank)
      if (hashes[rank * count + i] != hashes[i]) difference.ranks.push_back(rank);
    if (!difference.ranks.empty()) return difference;
  }
  return std::nullopt;
}

void refuse(const std::optional<Difference>& difference, const std::string& over, const std::vector<int>& world_ranks,
            const ProcessGroupMesh& mesh) {
  if (!difference) return;
  std::vector<std::string> ranks;
  for (const int rank : difference->ranks) ranks.push_back(mesh.mesh().describe_rank(world_ranks[rank]));
  throw NumericalError(
      {"replicas over " + over,
       fmt::format("{} differs between {} and {}", difference->what, mesh.mesh().describe_rank(world_ranks[0]),
                   fmt::join(ranks, ", ")),
       "bitwise identical values on every replica",
       "look for a gradient that is not reduced, random numbers that differ by rank, or a copy that is not shared"});
}

void add_items(std::vector<Item>& items, const GradientBuffers& gradients, std::size_t i) {
  const auto& held = gradients.held(i);
  items.push_back({"the parameter " + held.placement.name, hash_of(held.tensor)});
  if (gradients.gradient(i).defined())
    items.push_back({"the gradient of " + held.placement.name, hash_of(gradients.gradient(i))});
}

// For elements that several tp ranks hold: true if this rank's values are both the largest and the smallest
// ones.
bool overlaps_agree(const torch::Tensor& local, const ShardSpec& shard, ProcessGroup& group) {
  std::vector<std::int64_t> shape = local.sizes().vec();
  shape[shard.dim] = shard.segments.back().extent.end;
  bool agree = true;
  for (const auto op : {ReduceOp::kMax, ReduceOp::kMin}) {
    // Quantised weights are bytes.
    const double largest = local.is_floating_point() ? std::numeric_limits<double>::infinity() : 255,
                 smallest = local.is_floating_point() ? -largest : 0;
    const double least = op == ReduceOp::kMax ? smallest : largest;
    torch::Tensor full = torch::full(shape, least, local.options().requires_grad(false));
    const torch::Tensor mine = local.detach();
    std::int64_t offset = 0;
    for (const Range& range : shard.ranges(group.rank())) {
      full.narrow(shard.dim, range.begin, range.size()).copy_(mine.narrow(shard.dim, offset, range.size()));
      offset += range.size();
    }
    group.all_reduce(full, op).wait();
    offset = 0;
    for (const Range& range : shard.ranges(group.rank())) {
      agree = agree && torch::equal(full.narrow(shard.dim, range.begin, range.size()),
                                    mine.narrow(shard.dim, offset, range.size()));
      offset += range.size();
    }
  }
  return agree;
}

// Several ranks of the shard hold the same elements: checks that they agree on the parameter and on its
// gradient.
void audit_overlap(const ShardSpec& shard, const GradientBuffers& gradients, std::size_t i,
                   const ProcessGroupMesh& mesh) {
  const auto axes = names_of(shard.axes);
  ProcessGroup& group = mesh.group(axes);
  const auto& [placement, tensor] = gradients.parameters()[i];
  std::vector<Item> items;
  for (const auto& [kind, value] : {std::pair("the parameter ", tensor), {"the gradient of ", gradients.gradient(i)}}) {
    if (!value.defined()) continue;
    const bool agree = overlaps_agree(value, shard, group);
    // Rank 0 may agree while two others differ. Therefore each rank that does not agree gets a different
    // number.
    items.push_back({kind + placement.name, agree ? 0 : group.rank() + 1});
  }
  refuse(first_difference(group, items), fmt::format("{}", fmt::join(axes, " and ")),
         mesh.mesh().ranks_along(mesh.rank(), axes), mesh);
}

// Several ranks hold the same part: checks that they agree with the first of them.
void audit_repeat(const ShardSpec& shard, const GradientBuffers& gradients, std::size_t i,
                  const ProcessGroupMesh& mesh) {
  const auto axes = names_of(shard.axes);
  ProcessGroup& group = mesh.group(axes);
  const auto ranks = mesh.mesh().ranks_along(mesh.rank(), axes);
  std::vector<Item> items;
  add_items(items, gradients, i);
  for (const auto& item : items) {
    const auto hashes = all_gather_numbers(group, item.hash);
    const auto parts = all_gather_numbers(group, shard.rank_of(mesh.coordinates()) % shard.parts());
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const auto first = static_cast<std::size_t>(std::find(parts.begin(), parts.end(), parts[rank]) - parts.begin());
      if (hashes[rank] != hashes[first])
        refuse(Difference{item.what, {1}}, fmt::format("{}", fmt::join(axes, " and ")), {ranks[first], ranks[rank]},
               mesh);
    }
  }
}

void audit_overlaps(const GradientBuffers& gradients, const ProcessGroupMesh& mesh) {
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i)
    for (const ShardSpec& shard : gradients.held(i).placement.shards)
      if (shard.repeat > 1)
        audit_repeat(shard, gradients, i, mesh);
      else if (shard.overlaps() && !gradients.held(i).placement.shards.back().row)
        audit_overlap(shard, gradients, i, mesh);
}

// Checks the parameters that are not sharded over an axis, for each axis of the view; axes that shard layers
// come first.
void audit_view(axis::View view, const GradientBuffers& gradients, const ProcessGroupMesh& mesh) {
  auto axes = mesh.mesh().sharding_axes(view);
  for (const auto& name : mesh.mesh().batch_axes(view)) axes.push_back(name);
  for (const auto& axis : axes) {
    std::vector<Item> items;
    for (std::size_t i = 0; i < gradients.parameters().size(); ++i)
      if (const auto& placement = gradients.held(i).placement;
          placement.view == view && !placement.along(axis).sharded())
        add_items(items, gradients, i);
    refuse(first_difference(mesh[axis], items), axis, mesh.mesh().ranks_along(mesh.rank(), {axis}), mesh);
  }
}

}  // namespace

void audit_replicas(const GradientBuffers& gradients, const ProcessGroupMesh& mesh,
                    const PipelineStageManager& stages) {
  audit_view(axis::View::kDense, gradients, mesh);
  if (mesh.mesh().has_expert_view()) audit_view(axis::View::kExpert, gradients, mesh);
  audit_overlaps(gradients, mesh);
  const auto pipeline = mesh.mesh().ranks_along(mesh.rank(), {axis::kPipeline});
  for (const auto& [parameter, group] : gradients.shared()) {
    std::vector<Item> items;
    add_items(items, gradients, parameter);
    std::set<int> members;
    for (const int stage : gradients.parameters()[parameter].placement.stages)
      members.insert(pipeline[stages.rank_of(stage)]);
    refuse(first_difference(*group, items), "the stages that share it", {members.begin(), members.end()}, mesh);
  }
}

void check_equal_inputs(const TensorDict& tensors, const ProcessGroupMesh& mesh, const std::string& axis) {
  const auto ranks = mesh.mesh().ranks_along(mesh.rank(), {axis});
  std::vector<Item> items;
  std::string shapes;
  for (const auto& [name, tensor] : tensors) {
    shapes += name + describe(tensor);
    if (!tensor.is_meta()) items.push_back({"'" + name + "'", hash_of(tensor)});
  }
  auto difference = first_difference(
      mesh[axis],
      {{"the set of entries and shapes", static_cast<std::int64_t>(XXH3_64bits(shapes.data(), shapes.size()))}});
  if (!difference) difference = first_difference(mesh[axis], items);
  if (!difference) return;
  std::vector<std::string> others;
  for (const int rank : difference->ranks) others.push_back(mesh.mesh().describe_rank(ranks[rank]));
  throw InputError({"batch",
                    fmt::format("{} differs between {} and {}", difference->what, mesh.mesh().describe_rank(ranks[0]),
                                fmt::join(others, ", ")),
                    "the same batch on all ranks of a tp or cp group",
                    "partition samples only by the dp coordinate: use the boosted loader, or seed your own loader with "
                    "this coordinate"});
}

}  // namespace gantry
