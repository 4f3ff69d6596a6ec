#include "gantry/core/mesh.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>

#include "gantry/core/error.h"

namespace gantry {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)), size_(1) {
  std::set<std::string> names;
  for (const auto& [name, size] : axes_) {
    if (size < 1) throw ConfigError({"mesh", fmt::format("axis {} has size {}", name, size), "at least 1", ""});
    if (!names.insert(name).second)
      throw ConfigError({"mesh", "axis " + name + " is there twice", "distinct names", ""});
    if (size > std::numeric_limits<int>::max() / size_)
      throw ConfigError({"mesh", fmt::format("axis {} of size {} on {} ranks", name, size, size_),
                         fmt::format("at most {} ranks in all", std::numeric_limits<int>::max()), ""});
    size_ *= size;
  }
}

Mesh Mesh::hybrid(int ranks, int pipeline, int data, int tensor, const std::vector<std::string>& order) {
  if (pipeline < 1 || tensor < 1 || data < 0) {
    throw ConfigError({"parallel", fmt::format("pipeline {}, data {}, tensor {}", pipeline, data, tensor),
                       "sizes of at least 1", ""});
  }
  if (ranks < 1) throw ConfigError({"parallel", fmt::format("a job of {} ranks", ranks), "at least 1", ""});
  const long long model = static_cast<long long>(pipeline) * tensor;
  if (ranks % model != 0) {
    std::string remedy = "start a multiple of that many ranks";
    if (ranks % tensor == 0) {
      int fitting = std::min(pipeline, ranks / tensor);
      while ((ranks / tensor) % fitting != 0) --fitting;
      remedy = fmt::format("use pipeline {}", fitting);
    }
    throw ConfigError(fmt::format("parallel: pipeline {} * tensor {} = {} does not divide the {} ranks of this job; {}",
                                  pipeline, tensor, model, ranks, remedy));
  }
  if (data == 0) data = static_cast<int>(ranks / model);
  if (model > ranks / data || model * data != ranks) {
    throw ConfigError(
        fmt::format("parallel: pipeline {} * data {} * tensor {} = {} is not the {} ranks of this job; use data {}",
                    pipeline, data, tensor, model * data, ranks, ranks / model));
  }
  const std::map<std::string, int> sizes = {{"pp", pipeline}, {"dp", data}, {"tp", tensor}};
  std::vector<Axis> axes;
  for (const auto& name : order) {
    const auto found = sizes.find(name);
    if (found == sizes.end())
      throw ConfigError({"parallel.order", "axis '" + name + "'", "a permutation of pp, dp, tp", ""});
    axes.push_back({name, found->second});
  }
  if (axes.size() != sizes.size())
    throw ConfigError({"parallel.order", fmt::format("{} axes", axes.size()), "a permutation of pp, dp, tp", ""});
  return Mesh(std::move(axes));
}

int Mesh::index_of(const std::string& axis) const {
  std::string known;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return static_cast<int>(i);
    known += (i ? ", " : "") + axes_[i].name;
  }
  throw ConfigError({"mesh", "there is no axis '" + axis + "'", "one of " + known, ""});
}

int Mesh::axis_size(const std::string& axis) const { return axes_[index_of(axis)].size; }

std::vector<int> Mesh::coordinates(int rank) const {
  if (rank < 0 || rank >= size_)
    throw ConfigError({"mesh", fmt::format("rank {}", rank), fmt::format("0 to {}", size_ - 1), ""});
  std::vector<int> result(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0; rank /= axes_[i].size) result[i] = rank % axes_[i].size;
  return result;
}

int Mesh::coordinate(int rank, const std::string& axis) const { return coordinates(rank)[index_of(axis)]; }

int Mesh::rank_at(const std::vector<int>& coordinates) const {
  if (coordinates.size() != axes_.size())
    throw ConfigError(
        {"mesh", fmt::format("{} coordinates for the {} axes of {}", coordinates.size(), axes_.size(), describe()),
         "one for each axis", ""});
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

std::vector<int> Mesh::ranks_along(int rank, const std::vector<std::string>& axes) const {
  auto place = coordinates(rank);
  for (const auto& axis : axes) place[index_of(axis)] = 0;
  const int first = rank_at(place);
  std::vector<int> ranks = offsets_along(axes);
  for (int& member : ranks) member += first;
  return ranks;
}

std::vector<std::vector<int>> Mesh::groups(const std::vector<std::string>& axes) const {
  const std::vector<int> offsets = offsets_along(axes);
  std::vector<std::vector<int>> all;
  std::vector<bool> placed(size_, false);
  for (int rank = 0; rank < size_; ++rank) {
    if (placed[rank]) continue;
    auto& group = all.emplace_back();
    for (const int offset : offsets) {
      group.push_back(rank + offset);
      placed[rank + offset] = true;
    }
  }
  return all;
}

int Mesh::neighbour(int rank, const std::string& axis, int step) const {
  auto place = coordinates(rank);
  const int index = index_of(axis);
  const int size = axes_[index].size;
  place[index] = ((place[index] + step % size) % size + size) % size;
  return rank_at(place);
}

std::string Mesh::describe() const {
  std::string text;
  for (const auto& [name, size] : axes_) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name, size);
  return text;
}

std::string Mesh::describe_rank(int rank) const {
  const auto place = coordinates(rank);
  std::string text;
  for (std::size_t i = 0; i < axes_.size(); ++i) text += fmt::format("{}{} {}", i ? ", " : "", axes_[i].name, place[i]);
  return fmt::format("rank {} ({})", rank, text);
}

}  // namespace gantry
