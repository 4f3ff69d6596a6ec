#include "gantry/comm/mpi/roll_call.h"

#include <chrono>
#include <mpi.h>
#include <thread>

#include "gantry/comm/mpi/mpi_environment.h"

namespace gantry {
namespace {

constexpr int kHere = 1, kAllHere = 2;  // tags of MPI_COMM_WORLD, which carries nothing else from peer to peer

struct Awaited {
  int peer;
  MPI_Request request = MPI_REQUEST_NULL;
};

void tell(int peer, int tag) { check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD), "MPI_Send"); }

// The peers from whom nothing came in time; what was asked of them stays open, since the job ends.
std::vector<int> wait_for(const std::vector<int>& peers, int tag, double seconds) {
  std::vector<Awaited> awaited;
  for (const int peer : peers) {
    awaited.push_back({peer});
    check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &awaited.back().request), "MPI_Irecv");
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!awaited.empty()) {
    std::erase_if(awaited, [](Awaited& one) {
      int done = 0;
      check_mpi(MPI_Test(&one.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
    if (std::chrono::steady_clock::now() > deadline) break;
    if (!awaited.empty()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::vector<int> missing;
  for (const auto& one : awaited) missing.push_back(one.peer);
  return missing;
}

}  // namespace

std::vector<int> roll_call(const std::vector<int>& ranks, int rank, double seconds) {
  const int first = ranks.front();
  if (rank != first) {
    tell(first, kHere);
    return wait_for({first}, kAllHere, seconds + 1);
  }
  const std::vector<int> others(ranks.begin() + 1, ranks.end());
  auto missing = wait_for(others, kHere, seconds);
  if (missing.empty())
    for (const int other : others) tell(other, kAllHere);
  return missing;
}

}  // namespace gantry
