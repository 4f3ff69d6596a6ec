#include "gantry/comm/control/membership.h"

#include <algorithm>

namespace gantry {

Membership::Membership(ElasticPolicy policy) : policy_(std::move(policy)) {
  for (int rank = 0; rank < static_cast<int>(policy_.replicas.size()); ++rank) ranks_.insert(rank);
}

std::set<int> Membership::replica_of(int rank) const {
  const int replica = policy_.replicas[static_cast<std::size_t>(rank)];
  std::set<int> ranks;
  for (int other = 0; other < static_cast<int>(policy_.replicas.size()); ++other)
    if (policy_.replicas[static_cast<std::size_t>(other)] == replica) ranks.insert(other);
  return ranks;
}

bool Membership::lose(int rank) {
  std::set<int> left = ranks_;
  for (const int one : replica_of(rank)) left.erase(one);
  std::set<int> replicas;
  for (const int one : left) replicas.insert(policy_.replicas[static_cast<std::size_t>(one)]);
  if (static_cast<int>(replicas.size()) < policy_.min_replicas) return false;
  ranks_ = std::move(left);
  ++generation_;
  return true;
}

void Membership::grow() {
  for (const int rank : complete()) {
    ranks_.insert(rank);
    waiting_.erase(rank);
  }
  ++generation_;
}

// Returns the waiting ranks of replicas that wait in full.
std::set<int> Membership::complete() const {
  std::set<int> ranks;
  for (const int rank : waiting_) {
    const std::set<int> replica = replica_of(rank);
    if (std::includes(waiting_.begin(), waiting_.end(), replica.begin(), replica.end())) ranks.insert(rank);
  }
  return ranks;
}

}  // namespace gantry
