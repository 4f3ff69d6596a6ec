#include "gantry/core/mesh.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "gantry/core/error.h"

namespace gantry {

Mesh::Mesh(std::vector<Axis> axes, int expert) : axes_(std::move(axes)), size_(1) {
  std::set<std::string> names;
  for (const auto& [name, size] : axes_) {
    if (size < 1) throw ConfigError({"mesh", fmt::format("axis {} has size {}", name, size), "at least 1", ""});
    if (!names.insert(name).second)
      throw ConfigError({"mesh", "axis " + name + " appears twice", "distinct names", ""});
    if (size > std::numeric_limits<int>::max() / size_)
      throw ConfigError({"mesh", fmt::format("axis {} of size {} on {} ranks", name, size, size_),
                         fmt::format("at most {} ranks in all", std::numeric_limits<int>::max()), ""});
    size_ *= size;
  }
  if (expert == 1) return;
  const int inside = static_cast<int>(ranks_along(0, within_stage()).size());
  if (expert < 1 || inside % expert != 0)
    throw ConfigError({"parallel.expert", fmt::format("{} over the {} ranks that share a stage", expert, inside),
                       "a divisor of data * context * tensor", ""});
  for (const auto& axis : axes_)
    if (axis::is_pipeline(axis.name)) expert_axes_.push_back(axis);
  expert_axes_.push_back({axis::kExpertData, inside / expert});
  expert_axes_.push_back({axis::kExpert, expert});
}

namespace {

// Outermost axis first. An axis that is not in `order` is placed just outside tp if its size is above 1.
std::vector<Axis> in_order(const std::vector<std::string>& order, const std::map<std::string, int>& sizes) {
  const std::string expected = "a permutation of pp, dp, tp, optionally with cp";
  std::vector<Axis> axes;
  for (const auto& name : order) {
    const auto found = sizes.find(name);
    if (found == sizes.end()) throw ConfigError({"parallel.order", "axis '" + name + "'", expected, ""});
    axes.push_back({name, found->second});
  }
  const auto place_of = [&](const std::string& name) {
    return std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  };
  if (place_of(axis::kContext) == axes.end() && sizes.at(axis::kContext) > 1)
    axes.insert(place_of(axis::kTensor), {axis::kContext, sizes.at(axis::kContext)});
  if (axes.size() < sizes.size() - (place_of(axis::kContext) == axes.end() ? 1 : 0))
    throw ConfigError({"parallel.order", fmt::format("{} axes", order.size()), expected, ""});
  return axes;
}

}  // namespace

Mesh Mesh::hybrid(int ranks, int pipeline, int data, int tensor, const std::vector<std::string>& order, int context,
                  int expert) {
  if (pipeline < 1 || tensor < 1 || data < 0 || context < 1) {
    throw ConfigError({"parallel",
                       fmt::format("pipeline {}, data {}, context {}, tensor {}", pipeline, data, context, tensor),
                       "sizes of at least 1", ""});
  }
  if (ranks < 1) throw ConfigError({"parallel", fmt::format("a job of {} ranks", ranks), "at least 1", ""});
  const std::string context_text = context > 1 ? fmt::format("context {} * ", context) : "";
  const long long inner = static_cast<long long>(tensor) * context, model = pipeline * inner;
  if (ranks % model != 0) {
    std::string remedy = "start a multiple of that number of ranks";
    if (ranks % inner == 0) {
      const int outer = static_cast<int>(ranks / inner);
      int fitting = std::min(pipeline, outer);
      while (outer % fitting != 0) --fitting;
      remedy = fmt::format("use pipeline {}", fitting);
    }
    throw ConfigError(
        fmt::format("parallel: pipeline {} * {}tensor {} = {} does not divide the {} ranks of this job; {}", pipeline,
                    context_text, tensor, model, ranks, remedy));
  }
  if (data == 0) data = static_cast<int>(ranks / model);
  if (model > ranks / data || model * data != ranks) {
    throw ConfigError(
        fmt::format("parallel: pipeline {} * data {} * {}tensor {} = {} is not the {} ranks of this job; use data {}",
                    pipeline, data, context_text, tensor, model * data, ranks, ranks / model));
  }
  const std::map<std::string, int> sizes = {
      {axis::kPipeline, pipeline}, {axis::kData, data}, {axis::kContext, context}, {axis::kTensor, tensor}};
  return Mesh(in_order(order, sizes), expert);
}

// --- The views ---

const std::vector<Axis>& Mesh::axes(axis::View view) const {
  return view == axis::View::kExpert && has_expert_view() ? expert_axes_ : axes_;
}

std::vector<std::string> Mesh::batch_axes(axis::View view) const {
  if (!has_expert_view()) view = axis::View::kDense;
  std::vector<std::string> names;
  for (const auto& axis : axes(view))
    if (axis::is_batch(axis.name, view)) names.push_back(axis.name);
  return names;
}

std::vector<std::string> Mesh::sharding_axes(axis::View view) const {
  if (!has_expert_view()) view = axis::View::kDense;
  std::vector<std::string> names;
  for (const auto& axis : axes(view))
    if (!axis::is_batch(axis.name, view) && !axis::is_pipeline(axis.name)) names.push_back(axis.name);
  return names;
}

std::vector<std::string> Mesh::within_stage() const {
  std::vector<std::string> names;
  for (const auto& axis : axes_)
    if (!axis::is_pipeline(axis.name)) names.push_back(axis.name);
  return names;
}

bool Mesh::is_of_expert_view(const std::string& axis) const {
  return has_expert_view() && !axis::is_in(axis, axis::View::kDense);
}

// --- Coordinates ---

int Mesh::index_of(const std::string& axis) const {
  std::string known;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return static_cast<int>(i);
    known += (i ? ", " : "") + axes_[i].name;
  }
  throw ConfigError({"mesh", "there is no axis '" + axis + "'", "one of " + known, ""});
}

int Mesh::axis_size(const std::string& axis) const {
  if (is_of_expert_view(axis))
    for (const auto& [name, size] : expert_axes_)
      if (name == axis) return size;
  return axes_[index_of(axis)].size;
}

int Mesh::ranks_of_sequence() const {
  for (const auto& [name, size] : axes_)
    if (name == axis::kContext) return size;
  return 1;
}

std::vector<int> Mesh::coordinates(int rank) const {
  if (rank < 0 || rank >= size_)
    throw ConfigError({"mesh", fmt::format("rank {}", rank), fmt::format("0 to {}", size_ - 1), ""});
  std::vector<int> result(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0; rank /= axes_[i].size) result[i] = rank % axes_[i].size;
  return result;
}

int Mesh::coordinate(int rank, const std::string& axis) const {
  if (!is_of_expert_view(axis)) return coordinates(rank)[index_of(axis)];
  const auto inside = ranks_along(rank, within_stage());
  const auto place = static_cast<int>(std::lower_bound(inside.begin(), inside.end(), rank) - inside.begin());
  const int expert = expert_axes_.back().size;
  return axis == expert_axes_.back().name ? place % expert : place / expert;
}

Coordinates Mesh::coordinates_by_axis(int rank, axis::View view) const {
  Coordinates coordinates;
  for (const auto& [name, size] : axes(view)) coordinates[name] = coordinate(rank, name);
  return coordinates;
}

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  if (coordinates.size() != axes_.size())
    throw ConfigError(
        {"mesh", fmt::format("{} coordinates for the {} axes of {}", coordinates.size(), axes_.size(), describe()),
         "one coordinate per axis", ""});
  int rank = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const auto& [name, size] = axes_[i];
    if (coordinates[i] < 0 || coordinates[i] >= size)
      throw ConfigError(
          {"mesh", fmt::format("coordinate {} {}", name, coordinates[i]), fmt::format("0 to {}", size - 1), ""});
    rank = rank * size + coordinates[i];
  }
  return rank;
}

std::vector<int> Mesh::offsets_along(const std::vector<std::string>& axes) const {
  std::set<int> along;
  for (const auto& axis : axes) along.insert(index_of(axis));
  std::vector<int> offsets{0};
  int stride = size_;
  // Outer axes first, so that the offsets ascend.
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    stride /= axes_[i].size;
    if (!along.contains(static_cast<int>(i))) continue;
    std::vector<int> finer;
    for (const int offset : offsets)
      for (int place = 0; place < axes_[i].size; ++place) finer.push_back(offset + place * stride);
    offsets = std::move(finer);
  }
  return offsets;
}

std::vector<int> Mesh::ranks_along_expert(int rank, const std::vector<std::string>& axes) const {
  const auto is_along = [&](const char* name) { return std::find(axes.begin(), axes.end(), name) != axes.end(); };
  const int replica = coordinate(rank, axis::kExpertData), part = coordinate(rank, axis::kExpert);
  const int parts = expert_axes_.back().size;
  const std::vector<std::string> pipeline{axis::kPipeline};
  std::vector<int> members;
  for (const int stage : is_along(axis::kPipeline) ? ranks_along(rank, pipeline) : std::vector<int>{rank}) {
    const auto inside = ranks_along(stage, within_stage());
    for (int place = 0; place < static_cast<int>(inside.size()); ++place)
      if ((is_along(axis::kExpertData) || place / parts == replica) &&
          (is_along(axis::kExpert) || place % parts == part))
        members.push_back(inside[place]);
  }
  std::sort(members.begin(), members.end());
  return members;
}

std::vector<int> Mesh::ranks_along(int rank, const std::vector<std::string>& axes) const {
  if (std::any_of(axes.begin(), axes.end(), [&](const std::string& axis) { return is_of_expert_view(axis); }))
    return ranks_along_expert(rank, axes);
  auto place = coordinates(rank);
  for (const auto& axis : axes) place[index_of(axis)] = 0;
  const int first = rank_at(place);
  std::vector<int> ranks = offsets_along(axes);
  for (int& member : ranks) member += first;
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(const std::vector<std::string>& axes) const {
  std::vector<std::vector<int>> all;
  std::vector<bool> placed(size_, false);
  for (int rank = 0; rank < size_; ++rank) {
    if (placed[rank]) continue;
    for (const int member : all.emplace_back(ranks_along(rank, axes))) placed[member] = true;
  }
  return all;
}

std::vector<std::vector<std::string>> Mesh::group_sets() const {
  const auto batch = batch_axes();
  std::vector<std::vector<std::string>> units;  // outermost first; the batch axes replace the first of them
  bool has_batch = false;
  for (const auto& [name, size] : axes_) {
    const bool is_batch = axis::is_batch(name, axis::View::kDense);
    if (is_batch && std::exchange(has_batch, true)) continue;
    units.push_back(is_batch ? batch : std::vector<std::string>{name});
  }
  std::vector<std::vector<std::string>> sets;
  for (unsigned subset = 1; subset < (1u << units.size()); ++subset) {
    auto& set = sets.emplace_back();
    for (std::size_t i = 0; i < units.size(); ++i)
      if (subset & (1u << i)) set.insert(set.end(), units[i].begin(), units[i].end());
  }
  if (batch.size() > 1)
    for (const auto& name : batch) sets.push_back({name});
  if (has_expert_view()) sets.insert(sets.end(), {{axis::kExpertData}, {axis::kExpert}});
  return sets;
}

std::string Mesh::describe(axis::View view) const {
  std::string text;
  for (const auto& [name, size] : axes(view)) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  return text;
}

std::string Mesh::describe_rank(int rank, axis::View view) const {
  std::string text;
  for (const auto& [name, size] : axes(view))
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, coordinate(rank, name));
  return fmt::format("rank {} ({})", rank, text);
}

}  // namespace gantry
