#include "gantry/plugins/fully_shard.h"

#include <algorithm>
#include <map>
#include <set>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/core/base/wildcard.h"
#include "gantry/core/error.h"
#include "gantry/core/sharding/row_shards.h"
#include "gantry/nn/shard_style.h"
#include "gantry/plugins/fully_sharded_units.h"
#include "gantry/policies/model_map.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr int kInNoUnit = -1;

// The paths of the modules that match the patterns, in the order of the patterns. Matches of the same pattern
// are in the order of the model.
std::vector<std::string> paths_of_units(const ModelMap& map, const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const auto& pattern : patterns) {
    bool any = false;
    for (const auto& path : map.module_names()) {
      if (!matches_pattern(pattern, path, Star::kOnePart)) continue;
      any = true;
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
    if (any) continue;
    const std::string near = nearest_name(pattern, map.module_names());
    throw ConfigError({"fully_shard", "no module matches '" + pattern + "'",
                       "paths of modules, with * for any one part of a path",
                       near.empty() ? "check the names of the model's modules" : "did you mean '" + near + "'?"});
  }
  return paths;
}

// The innermost unit that contains the parameter under all of its names.
int unit_of(const NamedTensor& parameter, const std::vector<std::string>& paths) {
  std::set<int> found;
  for (const auto& name : parameter.names) {
    int innermost = kInNoUnit;
    for (std::size_t i = 0; i < paths.size(); ++i)
      if (is_within(name, paths[i]) && (innermost == kInNoUnit || paths[i].size() > paths[innermost].size()))
        innermost = static_cast<int>(i);
    found.insert(innermost);
  }
  return found.size() == 1 ? *found.begin() : kInNoUnit;
}

void share_values(const torch::Tensor& tensor, ProcessGroup& group, const FullyShardOptions& options) {
  if (is_deferred(tensor)) return;
  torch::Tensor values = tensor.detach();
  group.broadcast(values, 0).wait();
  if (options.replicas) options.replicas->broadcast(values, 0).wait();
}

void place(torch::Tensor tensor, const std::string& name, const FullyShardOptions& options) {
  const torch::Device device = options.device.value_or(tensor.device());
  materialize(tensor, name, options.seed, device);
  if (tensor.device() != device) tensor.set_data(tensor.detach().to(device));
}

// All memory of a unit must be on one device.
void refuse_other_device(const NamedTensor& parameter, const NamedTensor& first) {
  const torch::Device here = parameter.tensor.device(), there = first.tensor.device();
  if (here != there)
    throw UsageError(
        {"fully_shard",
         parameter.names.front() + " is on " + here.str() + ", but " + first.names.front() + " is on " + there.str(),
         "a module on one device", "pass FullyShardOptions::device"});
}

// The axes of the mesh, outermost first, that span `group`.
std::vector<Axis> axes_of(const ProcessGroup& group, const ProcessGroupMesh& mesh) {
  for (const auto& names : mesh.mesh().group_sets()) {
    if (&mesh.group(names) != &group) continue;
    std::vector<Axis> axes;
    for (const Axis& axis : mesh.mesh().axes())
      if (std::find(names.begin(), names.end(), axis.name) != names.end()) axes.push_back(axis);
    if (axes.size() == names.size()) return axes;
  }
  throw UsageError({"fully_shard", "the group of its parameters does not belong to a dense axis of this mesh", "",
                    "pass a group of the mesh, such as mesh[\"dp\"], to fully_shard, and that mesh to this call"});
}

// Replaces the tensor with this rank's rows.
ShardedUnit::Member shard_member(torch::Tensor tensor, const std::string& name, ProcessGroup& group,
                                 const FullyShardOptions& options) {
  const ViewShards rows{.axes = {{"", group.size()}}, .parts = group.size()};
  ShardedUnit::Member member{.tensor = tensor, .full = tensor.sizes().vec(), .parts = {}, .rows = {}};
  const ShardSpec shard = row_shard(member.full, rows);
  for (int part = 0; part < group.size(); ++part) {
    const Range range = shard.ranges(part, tensor.numel() / shard.row).front();
    member.parts.push_back({range.begin * shard.row, range.end * shard.row});
  }
  shard_tensor(tensor, shard, group.rank());
  place(tensor, name, options);
  if (member.full.size() < 2) member.rows = {tensor.numel()};
  return member;
}

}  // namespace

FullySharded fully_shard(torch::nn::Module& module, ProcessGroup& group, const FullyShardOptions& options) {
  const torch::NoGradGuard no_grad;
  const ModelMap map(module);
  for (const auto& parameter : map.parameters)
    if (notices_uses(parameter.tensor))
      throw UsageError({"fully_shard", parameter.names.front() + " is already sharded", "an unsharded module",
                        "call fully_shard once, with all units of the module"});
  if (!options.device)
    for (const auto& parameter : map.parameters) refuse_other_device(parameter, map.parameters.front());
  const auto paths = paths_of_units(map, options.units);
  set_global_names(module);
  for (const auto& buffer : map.buffers) {
    share_values(buffer.tensor, group, options);
    place(buffer.tensor, buffer.names.front(), options);
  }

  using Key = std::pair<int, torch::ScalarType>;
  std::map<Key, std::vector<std::size_t>> parameters_of;
  for (std::size_t i = 0; i < map.parameters.size(); ++i)
    parameters_of[{unit_of(map.parameters[i], paths), map.parameters[i].tensor.scalar_type()}].push_back(i);
  auto units = std::make_shared<FullySharded::Units>(group, options);
  std::vector<torch::Tensor> shards(map.parameters.size());
  for (const auto& [key, parameters] : parameters_of) {
    std::vector<ShardedUnit::Member> members;
    for (const std::size_t i : parameters) {
      const NamedTensor& parameter = map.parameters[i];
      share_values(parameter.tensor, group, options);
      members.push_back(shard_member(parameter.tensor, parameter.names.front(), group, options));
    }
    const bool outside = key.first == kInNoUnit;
    units->add(std::move(members), outside ? "those outside of units" : paths[key.first], outside);
    for (std::size_t k = 0; k < parameters.size(); ++k) shards[parameters[k]] = units->shard(units->count() - 1, k);
  }
  units->watch();
  TensorDict named;
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    named.set(map.parameters[i].names.front(), shards[i]);
    shapes.push_back(map.parameters[i].tensor.sizes().vec());
  }
  units->set_named(std::move(named), std::move(shapes));
  return FullySharded(std::move(units));
}

std::vector<torch::Tensor> FullySharded::parameters() const {
  std::vector<torch::Tensor> all;
  for (const auto& [name, shard] : units_->named()) all.push_back(shard);
  return all;
}

const TensorDict& FullySharded::named_parameters() const { return units_->named(); }

std::vector<Placement> FullySharded::placements(const ProcessGroupMesh& mesh,
                                                const std::vector<Placement>& sharded) const {
  const ViewShards rows{.axes = axes_of(units_->group(), mesh), .parts = units_->group().size()};
  std::vector<Placement> placements;
  for (const auto& [name, shard] : units_->named()) {
    const auto known = std::find_if(sharded.begin(), sharded.end(),
                                    [&name = name](const Placement& each) { return each.name == name; });
    Placement placement{
        .name = name, .global_shape = units_->shapes()[placements.size()], .shards = {}, .stages = {0}, .aliases = {}};
    if (known != sharded.end()) placement = *known;
    placement.shards.push_back(row_shard(placement.local_shape(mesh.coordinates()), rows));
    placements.push_back(std::move(placement));
  }
  return placements;
}

double FullySharded::clip_grad_norm(double max_norm) { return units_->clip_grad_norm(max_norm, {}, nullptr); }

double FullySharded::clip_grad_norm(double max_norm, const std::vector<Placement>& sharded, ProcessGroup& over) {
  std::set<std::string> counted_elsewhere;
  for (const Placement& placement : sharded) {
    if (placement.overlaps())
      throw UsageError({"clip_grad_norm", placement.name + " has elements that several ranks hold", "separate shards",
                        "use at most as many ranks as there are KV heads"});
    const bool is_sharded = std::any_of(placement.shards.begin(), placement.shards.end(),
                                        [](const ShardSpec& each) { return each.sharded(); });
    if (!is_sharded && over.rank() > 0) counted_elsewhere.insert(placement.name);
  }
  return units_->clip_grad_norm(max_norm, counted_elsewhere, &over);
}

void FullySharded::unshard() { units_->unshard(); }

void FullySharded::reshard() { units_->reshard(); }

}  // namespace gantry
