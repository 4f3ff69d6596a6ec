#include "gantry/optimizers/parameter_shards.h"

#include <algorithm>
#include <map>

#include <torch/torch.h>

#include "gantry/core/planted.h"
#include "gantry/optimizers/gradient_bucket.h"

namespace gantry {
namespace {

const std::vector<int>& found_in(const std::map<int, std::vector<int>>& units, int key) {
  static const std::vector<int> kNone;
  const auto found = units.find(key);
  return found == units.end() ? kNone : found->second;
}

constexpr std::int64_t kLine = 32;  // elements: products give other bits on memory that is aligned otherwise

}  // namespace

ParameterShards::ParameterShards(std::vector<HeldTensor>& parameters, const std::vector<int>& layers, RowShards rows,
                                 const ProcessGroupMesh& mesh)
    : rows_(std::move(rows)), mesh_(mesh), part_(rows_.part_of(mesh.coordinates())) {
  const torch::NoGradGuard no_grad;
  make_groups();
  std::map<UnitKey, int> known;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    make_member(parameters[i]);
    const Placement& placement = parameters[i].placement;
    const UnitKey key{placement.stages, layers[i], parameters[i].tensor.scalar_type()};
    const auto [place, is_new] = known.emplace(key, count());
    if (is_new) units_.emplace_back();
    units_[place->second].members.push_back(i);
    members_[i].unit = place->second;
    const auto note = [&](std::vector<int>& units) {
      if (std::find(units.begin(), units.end(), place->second) == units.end()) units.push_back(place->second);
    };
    if (layers[i] != kNoLayer) note(of_layer_[layers[i]]);
    if (layers[i] == kNoLayer)
      for (const int stage : placement.stages) note(outside_[stage]);
  }
  for (Unit& unit : units_) make_unit(unit, parameters[unit.members.front()].placement.name);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = members_[i].shard;
    wholes_.push_back(members_[i].whole);
  }
}

// One list of sets on all ranks: of the ranks that hold one copy, and of those that hold one part.
void ParameterShards::make_groups() {
  const Mesh& mesh = mesh_.mesh();
  const auto axes = names_of(rows_.axes);
  std::vector<std::vector<int>> copies, holders;
  for (const auto& batch : mesh.groups(axes)) {
    std::map<int, std::vector<int>> copy, holder;
    for (const int rank : batch) {
      const Coordinates coordinates = mesh.coordinates_by_axis(rank);
      copy[rows_.replica_of(coordinates)].push_back(rank);
      holder[rows_.part_of(coordinates)].push_back(rank);
    }
    for (auto& [replica, ranks] : copy) copies.push_back(std::move(ranks));
    for (auto& [part, ranks] : holder) holders.push_back(std::move(ranks));
  }
  const auto own_of = [&](const std::vector<std::vector<int>>& sets) {
    return *std::find_if(sets.begin(), sets.end(), [&](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), mesh_.rank()) != ranks.end();
    });
  };
  gathering_ = mesh_.make_group("gather of parameters", copies);
  if (rows_.replicas() > 1) replicas_ = mesh_.make_group("replicas of shards", holders);
  for (const int rank : own_of(copies)) parts_of_gathering_.push_back(rows_.part_of(mesh.coordinates_by_axis(rank)));
  for (const int rank : mesh.ranks_along(mesh_.rank(), axes)) {
    parts_of_batch_.push_back(rows_.part_of(mesh.coordinates_by_axis(rank)));
    replicas_of_batch_.push_back(rows_.replica_of(mesh.coordinates_by_axis(rank)));
  }
}

void ParameterShards::make_member(const HeldTensor& parameter) {
  Member member{.shard = parameter, .whole = parameter, .parts = {}};
  Placement& without = member.whole.placement;
  const Cut cut = without.cuts.back();
  without.cuts.pop_back();
  const std::int64_t rows = elements_of(without.local_shape(mesh_.coordinates())) / cut.row;
  for (int part = 0; part < rows_.parts; ++part) {
    const Range range = cut.ranges(part, rows).front();
    member.parts.push_back({range.begin * cut.row, range.end * cut.row});
  }
  members_.push_back(std::move(member));
}

void ParameterShards::make_unit(Unit& unit, const std::string& name) {
  std::int64_t elements = 0, own = 0;
  std::vector<std::int64_t> of_part(rows_.parts);
  for (const std::size_t i : unit.members) {
    Member& member = members_[i];
    member.offset = elements;
    elements += (member.parts.back().end + kLine - 1) / kLine * kLine;
    for (int part = 0; part < rows_.parts; ++part) of_part[part] += member.parts[part].size();
  }
  const torch::Tensor& first = members_[unit.members.front()].whole.tensor;
  unit.own = torch::empty({of_part[part_]}, first.options().requires_grad(false));
  for (const int part : parts_of_gathering_) unit.sizes.push_back(of_part[part]);
  unit.memory = std::make_unique<ReleasedMemory>(elements, first.scalar_type(), first.device(), "the unit of " + name);
  for (const std::size_t i : unit.members) {
    Member& member = members_[i];
    torch::Tensor& parameter = member.whole.tensor;
    member.shard.tensor = share_memory(unit.own, own, parameter.sizes());
    member.shard.tensor.copy_(parameter);
    own += parameter.numel();
    parameter.set_data(unit.memory->over(member.offset, member.whole.placement.local_shape(mesh_.coordinates())));
  }
}

const std::vector<int>& ParameterShards::outside_of_layers(int stage) const { return found_in(outside_, stage); }
const std::vector<int>& ParameterShards::of_layer(int layer) const { return found_in(of_layer_, layer); }

std::vector<int> ParameterShards::of_stage(int stage) const {
  std::vector<int> units = outside_of_layers(stage);
  for (const auto& [layer, of_it] : of_layer_)
    for (const int unit : of_it) {
      const auto& stages = members_[units_[unit].members.front()].whole.placement.stages;
      if (stages.front() == stage) units.push_back(unit);
    }
  return units;
}

bool ParameterShards::is_whole(int unit) const { return units_[unit].memory->is_there(); }

void ParameterShards::start(int unit) {
  Unit& each = units_[unit];
  if (each.memory->is_there() || each.arriving.defined()) return;
  const torch::NoGradGuard no_grad;
  std::int64_t all = 0;
  for (const std::int64_t size : each.sizes) all += size;
  each.arriving = torch::empty({all}, each.own.options());
  each.work = gathering_->all_gather(each.arriving, each.own, each.sizes);
}

void ParameterShards::wait(int unit) {
  Unit& each = units_[unit];
  if (each.memory->is_there()) return;
  start(unit);
  const torch::NoGradGuard no_grad;
  each.work.wait();
  each.memory->bring();
  std::int64_t from = 0;
  for (const int part : parts_of_gathering_)
    for (const std::size_t i : each.members) {
      const Range& range = members_[i].parts[part];
      if (range.size() == 0) continue;
      const std::int64_t to =
          planted("gathered-rows-in-another-order") ? members_[i].parts.back().end - range.end : range.begin;
      each.memory->over(members_[i].offset + to, {range.size()}).copy_(each.arriving.narrow(0, from, range.size()));
      from += range.size();
    }
  each.arriving.reset();
  each.work = {};
}

void ParameterShards::release(int unit) {
  Unit& each = units_[unit];
  if (each.arriving.defined()) wait(unit);  // on its way: the other ranks take part in it
  each.memory->release();
}

}  // namespace gantry
