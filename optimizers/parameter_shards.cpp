#include "gantry/optimizers/parameter_shards.h"

#include <algorithm>
#include <map>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/quantized_weight.h"

namespace gantry {
namespace {

const std::vector<int>& found_in(const std::map<int, std::vector<int>>& units, int key) {
  static const std::vector<int> kNone;
  const auto found = units.find(key);
  return found == units.end() ? kNone : found->second;
}

void add_once(std::vector<int>& units, int unit) {
  if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
}

// The shape of an unsharded parameter on this rank. A quantised weight has a record of bytes for each row.
Shape full_shape(const HeldTensor& parameter, const Coordinates& coordinates) {
  Shape shape = parameter.placement.local_shape(coordinates);
  if (has_records(parameter.tensor)) shape.back() = parameter.tensor.size(-1);
  return shape;
}

}  // namespace

ParameterShards::ParameterShards(std::vector<HeldTensor>& parameters, const std::vector<int>& layers,
                                 const RowShards& rows, const ProcessGroupMesh& mesh)
    : mesh_(mesh) {
  const torch::NoGradGuard no_grad;
  holders_.emplace(axis::View::kDense, make_holders(axis::View::kDense, rows.dense));
  if (mesh_.mesh().has_expert_view())
    holders_.emplace(axis::View::kExpert, make_holders(axis::View::kExpert, rows.experts));
  std::map<UnitKey, int> known;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    make_member(parameters[i]);
    const Placement& placement = parameters[i].placement;
    const UnitKey key{placement.stages, layers[i], placement.view, parameters[i].tensor.scalar_type()};
    const auto [place, is_new] = known.emplace(key, static_cast<int>(known.size()));
    if (is_new) parameters_of_.emplace_back();
    parameters_of_[place->second].push_back(i);
    members_[i].unit = place->second;
    note(place->second, layers[i], placement.stages);
  }
  for (const auto& of_unit : parameters_of_) make_unit(of_unit);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = members_[i].shard;
    unsharded_.push_back(members_[i].full);
  }
}

void ParameterShards::note(int unit, int layer, const std::vector<int>& stages) {
  if (layer >= 0) add_once(of_layer_[layer], unit);
  for (const int stage : stages) {
    if (layer == kNoLayer) add_once(outside_[stage], unit);
    if (layer == kBeforeLayers || (layer == kAroundLayers && stage == stages.front())) add_once(before_[stage], unit);
    if (layer == kAfterLayers || (layer == kAroundLayers && stage == stages.back())) add_once(after_[stage], unit);
  }
}

// All ranks pass the same list of sets: ranks that together hold one copy, and ranks that hold the same part.
ParameterShards::Holders ParameterShards::make_holders(axis::View view, const ViewShards& rows) const {
  const Mesh& mesh = mesh_.mesh();
  const auto axes = names_of(rows.axes);
  const auto part_of = [&](int rank) { return rows.part_of(mesh.coordinates_by_axis(rank, view)); };
  const auto replica_of = [&](int rank) { return rows.replica_of(mesh.coordinates_by_axis(rank, view)); };
  std::vector<std::vector<int>> copies, holders;
  for (const auto& batch : mesh.groups(axes)) {
    std::map<int, std::vector<int>> copy, holder;
    for (const int rank : batch) {
      copy[replica_of(rank)].push_back(rank);
      holder[part_of(rank)].push_back(rank);
    }
    for (auto& [replica, ranks] : copy) copies.push_back(std::move(ranks));
    for (auto& [part, ranks] : holder) holders.push_back(std::move(ranks));
  }
  const auto own_of = [&](const std::vector<std::vector<int>>& sets) {
    return *std::find_if(sets.begin(), sets.end(), [&](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), mesh_.rank()) != ranks.end();
    });
  };
  const std::string what = view == axis::View::kExpert ? "experts" : "parameters";
  Holders made{.rows = rows, .part = part_of(mesh_.rank()), .gathering = mesh_.make_group("gather of " + what, copies)};
  if (rows.replicas() > 1) made.replicas = mesh_.make_group("replicas of shards of " + what, holders);
  for (const int rank : own_of(copies)) made.parts_of_gathering.push_back(part_of(rank));
  for (const int rank : mesh.ranks_along(mesh_.rank(), axes)) {
    made.parts_of_batch.push_back(part_of(rank));
    made.replicas_of_batch.push_back(replica_of(rank));
  }
  return made;
}

void ParameterShards::make_member(const HeldTensor& parameter) {
  Member member{.shard = parameter, .full = parameter, .parts = {}};
  Placement& without = member.full.placement;
  const ShardSpec shard = without.shards.back();
  without.shards.pop_back();
  const std::int64_t rows = elements_of(without.local_shape(mesh_.coordinates())) / shard.row;
  const std::int64_t row = has_records(parameter.tensor) ? parameter.tensor.size(-1) : shard.row;
  for (int part = 0; part < holders_.at(without.view).rows.parts; ++part) {
    const Range range = shard.ranges(part, rows).front();
    member.parts.push_back({range.begin * row, range.end * row});
  }
  members_.push_back(std::move(member));
}

void ParameterShards::make_unit(const std::vector<std::size_t>& parameters) {
  const Placement& first = members_[parameters.front()].full.placement;
  std::vector<ShardedUnit::Member> members;
  for (const std::size_t i : parameters) {
    const HeldTensor& full = members_[i].full;
    members.push_back(
        {.tensor = full.tensor, .full = full_shape(full, mesh_.coordinates()), .parts = members_[i].parts, .rows = {}});
  }
  views_.push_back(first.view);
  const Holders& holders = holders_.at(first.view);
  units_.push_back(std::make_unique<ShardedUnit>(
      std::move(members), *holders.gathering, holders.parts_of_gathering, "the unit of " + first.name,
      "with parallel.zero 3, run layers with stage.run_layers, or set parallel.gather: step to gather full stages"));
  first_stage_.push_back(first.stages.front());
  for (std::size_t i = 0; i < parameters.size(); ++i) members_[parameters[i]].shard.tensor = units_.back()->shard(i);
}

void ParameterShards::release_shard(const OtherHolder& other) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (units_[unit]->has_rows() && std::ranges::all_of(parameters_of_[unit], other.has))
      units_[unit]->release_shard([this, unit, write = other.write] {
        for (const std::size_t i : parameters_of_[unit]) write(i, members_[i].shard.tensor);
      });
}

void ParameterShards::keep_rows() {
  for (const auto& unit : units_) unit->keep_rows();
}

const std::vector<int>& ParameterShards::outside_of_layers(int stage) const { return found_in(outside_, stage); }
const std::vector<int>& ParameterShards::before_layers(int stage) const { return found_in(before_, stage); }
const std::vector<int>& ParameterShards::after_layers(int stage) const { return found_in(after_, stage); }
const std::vector<int>& ParameterShards::of_layer(int layer) const { return found_in(of_layer_, layer); }

std::vector<int> ParameterShards::of_stage(int stage) const {
  std::vector<int> units = before_layers(stage);
  const auto append = [&](const std::vector<int>& more) {
    for (const int unit : more) add_once(units, unit);
  };
  append(outside_of_layers(stage));
  for (const auto& [layer, of_it] : of_layer_)
    for (const int unit : of_it)
      if (first_stage_[unit] == stage) units.push_back(unit);
  append(after_layers(stage));
  return units;
}

}  // namespace gantry
