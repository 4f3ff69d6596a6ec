#include "gantry/comm/processes/job_hosts.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <linux/futex.h>
#include <numeric>
#include <optional>
#include <sstream>
#include <sys/syscall.h>
#include <type_traits>
#include <unistd.h>

#include "gantry/core/base/warning.h"
#include "gantry/core/host/this_host.h"
#include "gantry/core/host/usable_cores.h"

namespace gantry {
namespace {

// Reads "0,0,1": simulated hosts of the ranks, as parts of their real host; for tests on one machine.
int pretended_host(int rank) {
  const char* text = std::getenv("GANTRY_PRETEND_HOSTS");
  if (!text) return 0;
  std::istringstream hosts(text);
  std::string host;
  for (int place = 0; place <= rank; ++place)
    if (!std::getline(hosts, host, ',')) return 0;
  return std::atoi(host.c_str());
}

// Returns a key that is equal in processes that can open each other's memory: on one machine, in the same
// namespaces.
std::string machine_key() {
  std::string key = host_name();
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  if (std::getline(boot, text)) key += " " + text;
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    std::error_code ignored;
    key += " " + std::filesystem::read_symlink(space, ignored).string();
  }
  return key;
}

// The location of a rank.
struct RankCard {
  CpuClaim claim;
  char machine[256] = "";
  std::int64_t pretended_host = 0;

  bool same_machine(const RankCard& other) const { return std::strcmp(machine, other.machine) == 0; }
  bool same_host(const RankCard& other) const { return same_machine(other) && pretended_host == other.pretended_host; }
};

template <class Value>
std::vector<Value> gather_of_all(Transport& transport, const Value& mine, const std::string& waited) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> values;
  for (const std::string& bytes : transport.gather({reinterpret_cast<const char*>(&mine), sizeof(mine)}, waited))
    std::memcpy(&values.emplace_back(), bytes.data(), sizeof(Value));
  return values;
}

}  // namespace

void warn_unshared(const std::string& name, const std::string& trouble) {
  static std::atomic<bool> is_said{false};
  if (is_said.exchange(true)) return;
  print_warning(name + ": the ranks of this host cannot share memory (" + trouble +
                "); their collectives use messages, which is slower");
}

JobHosts::JobHosts(Transport& transport, const std::string& name, const std::string& waited) {
  RankCard mine;
  mine.claim = own_cpu_claim();
  std::strncpy(mine.machine, machine_key().c_str(), sizeof(mine.machine) - 1);
  mine.pretended_host = pretended_host(transport.rank());
  const std::vector<RankCard> cards = gather_of_all(transport, mine, waited);
  std::vector<CpuClaim> claims;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const auto same_host = [&](const RankCard& other) { return other.same_host(cards[rank]); };
    hosts_.push_back(static_cast<int>(std::find_if(cards.begin(), cards.end(), same_host) - cards.begin()));
    places_.push_back(
        static_cast<int>(std::count_if(cards.begin(), cards.begin() + static_cast<std::ptrdiff_t>(rank), same_host)));
    if (cards[rank].same_machine(mine)) claims.push_back(cards[rank].claim);
  }
  one_machine_ = claims.size() == cards.size();
  cores_of_rank_ = share_of_cores(mine.claim, claims);
  share_doorbells(transport, name, waited);
}

// A host whose ranks cannot share memory is split: each rank counts as a host of its own.
void JobHosts::share_doorbells(Transport& transport, const std::string& name, const std::string& waited) {
  const int rank = transport.rank(), leader = host_of(rank);
  const auto size = static_cast<int>(std::count(hosts_.begin(), hosts_.end(), leader));
  const std::size_t bytes = Doorbells::bytes(size);
  std::optional<HostMemory::Offer> offer;
  if (rank == leader) offer.emplace(bytes);
  const auto addresses = gather_of_all(transport, offer ? offer->address() : HostMemory::Address{}, waited);
  const HostMemory::Address& address = addresses[static_cast<std::size_t>(leader)];
  int error = 0;
  auto memory = HostMemory::open(address, bytes, error);
  const std::vector<int> errors = gather_of_all(transport, error, waited);
  std::vector<int> of_host(hosts_.size(), 0);  // by leader
  for (std::size_t i = 0; i < hosts_.size(); ++i) of_host[hosts_[i]] = std::max(of_host[hosts_[i]], errors[i]);
  const int trouble = of_host[leader];
  if (trouble != 0 && rank == leader) warn_unshared(name, HostMemory::describe_trouble(address, bytes, trouble));
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (of_host[hosts_[i]] == 0) continue;
    hosts_[i] = static_cast<int>(i);  // a leader's number stays the same
    places_[i] = 0;
  }
  neighbours_.resize(trouble == 0 ? size : 1);
  std::iota(neighbours_.begin(), neighbours_.end(), 0);
  if (trouble != 0) memory = HostMemory::own(Doorbells::bytes(1));
  doorbells_ = std::make_unique<Doorbells>(std::move(memory), place_of(rank));
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
