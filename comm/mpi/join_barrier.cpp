#include "gantry/comm/mpi/join_barrier.h"

#include <algorithm>
#include <chrono>
#include <mpi.h>
#include <thread>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/mpi/mpi_environment.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHere = 1, kAllHere = 2, kFirstHere = 3;  // tags of MPI_COMM_WORLD, which has no other messages
constexpr std::chrono::milliseconds kLookForEnded{100};

struct Awaited {
  int peer;
  MPI_Request request = MPI_REQUEST_NULL;
};

void tell(int peer, int tag) { check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD), "MPI_Send"); }

// Waits for a word of that tag from each of `peers`; `heard` is called at each. What was asked of those that are
// missing stays open, since the job ends.
BarrierEnd wait_for(const std::vector<int>& peers, int tag, double seconds,
                    const std::function<int(const std::vector<int>&)>& find_ended,
                    const std::function<void(int peer)>& heard) {
  std::vector<Awaited> awaited;
  for (const int peer : peers) {
    awaited.push_back({peer});
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &awaited.back().request), "MPI_Irecv");
  }
  BarrierEnd end;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  auto next_look = Clock::now() + kLookForEnded;
  while (true) {
    std::erase_if(awaited, [&](Awaited& one) {
      int done = 0;
      check_mpi(MPI_Test(&one.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) heard(one.peer);
      return done != 0;
    });
    end.missing.clear();
    for (const auto& one : awaited) end.missing.push_back(one.peer);
    const auto now = Clock::now();
    if (now > next_look) {
      next_look = now + kLookForEnded;
      end.ended = find_ended(end.missing);
    }
    if (end.missing.empty() || end.ended >= 0 || now > deadline) return end;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

BarrierEnd join_barrier(const std::vector<int>& ranks, int rank, double seconds,
                        const std::function<int(const std::vector<int>&)>& find_ended) {
  const int first = ranks.front();
  const auto nothing = [](int) {};
  if (rank == first) {
    const std::vector<int> others(ranks.begin() + 1, ranks.end());
    BarrierEnd end = wait_for(others, kHere, seconds, find_ended, [](int peer) { tell(peer, kFirstHere); });
    if (end.missing.empty())
      for (const int other : others) tell(other, kAllHere);
    return end;
  }
  tell(first, kHere);
  BarrierEnd end = wait_for({first}, kFirstHere, seconds + control::kFirstMemberSeconds, find_ended, nothing);
  if (!end.missing.empty()) return end;
  end = wait_for({first}, kAllHere, seconds + control::kFirstMemberSeconds, find_ended, nothing);
  end.first_waits = !end.missing.empty() && end.ended < 0;
  return end;
}

}  // namespace gantry
