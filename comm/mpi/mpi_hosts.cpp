#include "gantry/comm/mpi/mpi_hosts.h"

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <linux/futex.h>
#include <numeric>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>

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

void warn_unshared(const std::string& name, const std::string& trouble) {
  static std::atomic<bool> is_said{false};
  if (is_said.exchange(true)) return;
  std::fprintf(
      stderr,
      "warning: %s: the ranks of this host cannot share memory (%s); their collectives use messages, which is slower\n",
      name.c_str(), trouble.c_str());
}

MpiHosts::MpiHosts(MPI_Comm job, const std::string& name) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(job, &rank);
  MPI_Comm_size(job, &ranks);
  MPI_Comm machine = MPI_COMM_NULL, host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(job, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine), "MPI_Comm_split_type");
  check_mpi(MPI_Comm_split(machine, pretended_host(rank), rank, &host), "MPI_Comm_split");
  int place = 0, size = 1, leader = rank;
  MPI_Comm_rank(host, &place);
  MPI_Comm_size(host, &size);
  check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, host), "MPI_Bcast");
  std::string trouble;
  auto memory = HostMemory::create(host, Doorbells::bytes(size), trouble);
  if (!memory) {
    if (place == 0) warn_unshared(name, trouble);
    // Alone, then: its ranks share no memory.
    leader = rank;
    place = 0;
    size = 1;
    memory = HostMemory::own(Doorbells::bytes(size));
  }
  doorbells_ = std::make_unique<Doorbells>(std::move(memory), place);
  hosts_.resize(ranks);
  places_.resize(ranks);
  check_mpi(MPI_Allgather(&leader, 1, MPI_INT, hosts_.data(), 1, MPI_INT, job), "MPI_Allgather");
  check_mpi(MPI_Allgather(&place, 1, MPI_INT, places_.data(), 1, MPI_INT, job), "MPI_Allgather");
  neighbours_.resize(size);
  std::iota(neighbours_.begin(), neighbours_.end(), 0);
  MPI_Comm_free(&host);
  MPI_Comm_free(&machine);
}

void Doorbells::ring(const std::vector<int>& members) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const int member : members) {
    Bell& bell = bells_[member];
    if (member == mine_ || bell.sleepers.load(std::memory_order_relaxed) == 0) continue;
    bell.rings.fetch_add(1, std::memory_order_release);
    ::syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

std::uint32_t Doorbells::announce() {
  Bell& bell = bells_[mine_];
  const std::uint32_t rings = bell.rings.load(std::memory_order_acquire);
  bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return rings;
}

void Doorbells::sleep(std::uint32_t rings, std::chrono::microseconds longest) {
  const timespec limit{longest.count() / 1'000'000, longest.count() % 1'000'000 * 1000};
  ::syscall(SYS_futex, &bells_[mine_].rings, FUTEX_WAIT, rings, &limit, nullptr, 0);
}

void Doorbells::leave() { bells_[mine_].sleepers.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace gantry
