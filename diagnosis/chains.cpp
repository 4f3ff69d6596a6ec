#include "gantry/diagnosis/chains.h"

#include <algorithm>
#include <map>
#include <set>

namespace gantry::recorder {
namespace {

// The links from `start` to `last`, using the link that first reached each rank.
Chain way_to(const Link& last, int start, const std::map<int, Link>& reached_by) {
  Chain chain{last};
  while (chain.back().blocked->rank != start) chain.push_back(reached_by.at(chain.back().blocked->rank));
  std::reverse(chain.begin(), chain.end());
  return chain;
}

void add_chains_from(const Blocked& start, const Waits& waits, std::vector<Chain>& chains) {
  std::map<int, Link> reached_by;
  std::set<int> seen{start.rank};
  std::vector<const Blocked*> queue{&start};
  for (std::size_t at = 0; at < queue.size(); ++at)
    for (const auto& awaited : queue[at]->awaited) {
      if (awaited.cause != Cause::kElsewhere) {
        chains.push_back(way_to({queue[at], awaited}, start.rank, reached_by));
      } else if (seen.insert(awaited.rank).second) {
        reached_by[awaited.rank] = {queue[at], awaited};
        queue.push_back(waits.blocked_of(awaited.rank));
      }
    }
}

// Depth-first search without recursion, because files may name very many ranks. Clears ranks that are on no cycle.
Chain search(const Blocked& start, const Waits& waits, std::set<int>& cleared) {
  struct Visit {
    const Blocked* blocked;
    std::size_t next = 0;
  };
  std::vector<Visit> visits{{&start}};
  std::set<int> open{start.rank};
  while (!visits.empty()) {
    Visit& visit = visits.back();
    if (visit.next == visit.blocked->awaited.size() || cleared.contains(visit.blocked->rank)) {
      cleared.insert(visit.blocked->rank);
      open.erase(visit.blocked->rank);
      visits.pop_back();
      continue;
    }
    const Awaited& awaited = visit.blocked->awaited[visit.next++];
    if (awaited.cause != Cause::kElsewhere) continue;
    if (open.insert(awaited.rank).second) {
      visits.push_back({waits.blocked_of(awaited.rank)});
      continue;
    }
    Chain chain;
    auto each =
        std::find_if(visits.begin(), visits.end(), [&](const Visit& one) { return one.blocked->rank == awaited.rank; });
    for (; each != visits.end(); ++each) chain.push_back({each->blocked, each->blocked->awaited[each->next - 1]});
    return chain;
  }
  return {};
}

}  // namespace

std::vector<Chain> chains_of(const Waits& waits) {
  std::vector<Chain> chains;
  std::set<int> started;
  for (const auto& blocked : waits.blocked())
    if (started.insert(blocked.rank).second) add_chains_from(blocked, waits, chains);
  return chains;
}

Chain cycle_of(const Waits& waits) {
  std::set<int> cleared;
  for (const auto& blocked : waits.blocked())
    if (Chain chain = search(blocked, waits, cleared); !chain.empty()) return chain;
  return {};
}

}  // namespace gantry::recorder
