// Which ranks of the job are on which host.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "gantry/comm/mpi/mpi_engine.h"
#include "gantry/comm/mpi/mpi_environment.h"

namespace gantry {
namespace {

// "0,0,1": hosts that the ranks are to take themselves to be on, beside their own; for tests on one machine.
int pretended_host(int rank) {
  const char* text = std::getenv("GANTRY_PRETEND_HOSTS");
  if (!text) return 0;
  std::istringstream hosts(text);
  std::string host;
  for (int place = 0; place <= rank; ++place)
    if (!std::getline(hosts, host, ',')) return 0;
  return std::atoi(host.c_str());
}

}  // namespace

void MpiEngine::warn_unshared(const std::string& trouble) const {
  static std::atomic<bool> is_said{false};
  if (is_said.exchange(true)) return;
  std::fprintf(
      stderr,
      "warning: %s: the ranks of this host share no memory (%s); their collectives go by messages, which takes "
      "longer\n",
      describe_rank(rank_).c_str(), trouble.c_str());
}

void MpiEngine::find_hosts() {
  MPI_Comm machine = MPI_COMM_NULL, host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(control_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_split(machine, pretended_host(rank_), rank_, &host), "MPI_Comm_split");
  int place = 0, size = 1, leader = rank_;
  MPI_Comm_rank(host, &place);
  MPI_Comm_size(host, &size);
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, host), "MPI_Bcast");
  std::string trouble;
  auto memory = HostMemory::create(host, Doorbells::bytes(size), trouble);
  if (!memory) {
    if (place == 0) warn_unshared(trouble);
    // Alone, then: its ranks share no memory.
    leader = rank_;
    place = 0;
    size = 1;
    memory = HostMemory::own(Doorbells::bytes(size));
  }
  doorbells_ = std::make_unique<Doorbells>(std::move(memory), place);
  hosts_.resize(size_);
  places_.resize(size_);
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, hosts_.data(), 1, MPI_INT, control_), "MPI_Allgather");
  check_mpi(MPI_Allgather(&place, 1, MPI_INT, places_.data(), 1, MPI_INT, control_), "MPI_Allgather");
  neighbours_.resize(size);
  std::iota(neighbours_.begin(), neighbours_.end(), 0);
  MPI_Comm_free(&host);
  MPI_Comm_free(&machine);
}

}  // namespace gantry
