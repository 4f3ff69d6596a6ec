// The mesh: named axes over the world ranks. Pure arithmetic; process groups are made from it in comm/.
#pragma once

#include <string>
#include <vector>

namespace gantry {

class Mesh {
 public:
  struct Axis {
    std::string name;
    int size;
  };

  // Axes outermost first: the last one's neighbours are adjacent world ranks. Sizes are at least 1, names distinct;
  // else ConfigError.
  explicit Mesh(std::vector<Axis> axes);

  // The mesh of a job of `ranks` ranks; data 0 means ranks / (tensor * pipeline). `order` is a permutation of pp, dp,
  // tp. ConfigError with the arithmetic where the sizes don't multiply to `ranks`.
  static Mesh hybrid(int ranks, int pipeline, int data, int tensor,
                     const std::vector<std::string>& order = {"pp", "dp", "tp"});

  int size() const { return size_; }
  const std::vector<Axis>& axes() const { return axes_; }
  int axis_size(const std::string& axis) const;  // ConfigError for an unknown axis, naming the known ones
  int coordinate(int rank, const std::string& axis) const;
  std::vector<int> coordinates(int rank) const;
  // ConfigError unless there is one coordinate for each axis, within its size.
  int rank_at(const std::vector<int>& coordinates) const;

  // The ranks that share with `rank` every coordinate outside `axes`, ascending.
  std::vector<int> ranks_along(int rank, const std::vector<std::string>& axes) const;
  // All such groups, each ascending, ordered by their first rank.
  std::vector<std::vector<int>> groups(const std::vector<std::string>& axes) const;
  // The rank next to `rank` along `axis` by `step`, wrapping round.
  int neighbour(int rank, const std::string& axis, int step) const;

  std::string describe() const;               // "pp 2 x dp 1 x tp 2"
  std::string describe_rank(int rank) const;  // "rank 2 (pp 1, dp 0, tp 0)"

 private:
  int index_of(const std::string& axis) const;
  // What to add to the first rank of a group along `axes` for each of its ranks, ascending.
  std::vector<int> offsets_along(const std::vector<std::string>& axes) const;
  std::vector<Axis> axes_;
  int size_;
};

}  // namespace gantry
