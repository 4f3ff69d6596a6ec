// Selects the rank that acts next: a tournament over the ranks' times, so that a change takes time logarithmic in the
// number of ranks.
#pragma once

#include <limits>
#include <vector>

namespace gantry::schedule {

class EarliestRank {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit EarliestRank(int ranks) {
    while (leaves_ < ranks) leaves_ *= 2;
    times_.assign(leaves_, kNever);
    winners_.resize(2 * static_cast<std::size_t>(leaves_));
    for (int leaf = 0; leaf < leaves_; ++leaf) winners_[leaves_ + leaf] = leaf;
    for (int node = leaves_ - 1; node > 0; --node) winners_[node] = winners_[left_of(node)];
  }

  void set(int rank, double time) {
    times_[rank] = time;
    for (int node = (leaves_ + rank) / 2; node > 0; node /= 2) {
      const int left = winners_[left_of(node)], right = winners_[left_of(node) + 1];
      winners_[node] = times_[right] < times_[left] ? right : left;
    }
  }

  // The lowest of the earliest ranks; -1 if no rank will act again.
  int rank() const {
    const int winner = leaves_ == 1 ? 0 : winners_[1];
    return times_[winner] < kNever ? winner : -1;
  }

 private:
  // The left child of a node of the tree.
  static std::size_t left_of(int node) { return static_cast<std::size_t>(node) * 2; }

  int leaves_ = 1;
  std::vector<double> times_;
  std::vector<int> winners_;  // earliest rank of each subtree; the root is 1
};

}  // namespace gantry::schedule
