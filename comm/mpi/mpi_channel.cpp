#include "gantry/comm/mpi/mpi_channel.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <thread>

#include "gantry/comm/control/timers.h"
#include "gantry/comm/mpi/mpi_environment.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

// Tags of MPI_COMM_WORLD. A program that has initialised MPI itself must not use them there.
constexpr int kArrived = 1, kReleased = 2, kFirstHere = 3;
constexpr std::chrono::milliseconds kLookForEnded{100};

struct Awaited {
  int peer;
  MPI_Request request = MPI_REQUEST_NULL;
};

void tell(int peer, int tag) { check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD), "MPI_Send"); }

struct BarrierEnd {
  std::vector<int> missing;  // world ranks that have not come; empty when all have
  bool first_waits = false;  // the first member has come, and waits for others that this one does not know
  int ended = -1;            // one of the missing that has ended its work: there was no need to wait longer
};

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

// Each member tells the first one that it is there, who answers at once that it is there too, and again when all are.
// After `seconds` the first member names those that have not come, and the others the first one, unless it has answered
// once: then they wait until it must have named someone. `find_ended` gives one of some ranks that has ended its work,
// -1 without. Collective over `ranks`: MPI's own set-up calls can't be asked who is missing.
BarrierEnd join_barrier(const std::vector<int>& ranks, int rank, double seconds,
                        const std::function<int(const std::vector<int>&)>& find_ended) {
  const int first = ranks.front();
  const auto nothing = [](int) {};
  if (rank == first) {
    const std::vector<int> others(ranks.begin() + 1, ranks.end());
    BarrierEnd end = wait_for(others, kArrived, seconds, find_ended, [](int peer) { tell(peer, kFirstHere); });
    if (end.missing.empty())
      for (const int other : others) tell(other, kReleased);
    return end;
  }
  tell(first, kArrived);
  BarrierEnd end = wait_for({first}, kFirstHere, seconds + control::kFirstMemberSeconds, find_ended, nothing);
  if (!end.missing.empty()) return end;
  end = wait_for({first}, kReleased, seconds + control::kFirstMemberSeconds, find_ended, nothing);
  end.first_waits = !end.missing.empty() && end.ended < 0;
  return end;
}

}  // namespace

MpiChannel::MpiChannel(std::shared_ptr<MpiEngine> engine, std::string label, std::vector<int> ranks)
    : engine_(std::move(engine)),
      label_(std::move(label)),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), engine_->rank()) - ranks_.begin())),
      tags_(tag_layout(mpi_largest_tag())),
      data_tags_(mpi_largest_tag()) {
  constexpr int kTag = 0;  // members make their groups in the same order, so one tag is enough
  const double seconds = engine_->timeout_seconds();
  const std::string waited = fmt::format("{} waited {} s for the ranks {} to make the group '{}' with it",
                                         describe_member(rank_), seconds, fmt::join(ranks_, ", "), label_);
  barrier_with_names(waited);
  const Watchdog watchdog(seconds, waited);
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, size(), ranks_.data(), &members), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, kTag, &heads_), "MPI_Comm_create_group");
  check_mpi(MPI_Comm_dup(heads_, &data_), "MPI_Comm_dup");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(heads_, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(data_, MPI_ERRORS_RETURN);
  find_hosts();
  if (worth_sharing_) make_ring();
}

void MpiChannel::barrier_with_names(const std::string& waited) {
  const auto find_ended = [this](const std::vector<int>& ranks) {
    engine_->progress(/*thorough=*/true);
    engine_->failures().throw_if_failed();  // another member may know more
    return engine_->failures().find_ended(ranks);
  };
  const BarrierEnd end = join_barrier(ranks_, engine_->rank(), engine_->timeout_seconds(), find_ended);
  if (end.missing.empty()) return;
  std::vector<std::string> names;
  for (const int rank : end.missing) names.push_back(engine_->describe_rank(rank));
  const std::string missing = fmt::format("{}", fmt::join(names, ", "));
  const std::string what = fmt::format("the ranks {} to make the group '{}', which {} has not joined",
                                       fmt::join(ranks_, ", "), label_, missing);
  engine_->fail(PeerError::kExitCode,
                end.ended >= 0    ? ended_early_text(describe_member(rank_), what, engine_->describe_rank(end.ended))
                : end.first_waits ? fmt::format("{}; {} has joined and waits too", waited, missing)
                                  : fmt::format("{}; {} has not joined", waited, missing));
  engine_->failures().throw_if_failed();
}

// The same on all members but for their own place.
void MpiChannel::find_hosts() {
  struct Host {
    int number, first, members;
  };
  std::vector<Host> hosts;  // in the order of their ranks
  bool contiguous = true;
  for (int rank = 0; rank < size(); ++rank) {
    const int number = engine_->hosts().host_of(ranks_[rank]);
    if (hosts.empty() || hosts.back().number != number) {
      contiguous = contiguous &&
                   std::none_of(hosts.begin(), hosts.end(), [&](const Host& host) { return host.number == number; });
      hosts.push_back({number, rank, 0});
    }
    ++hosts.back().members;
  }
  const auto fewer = [](const Host& a, const Host& b) { return a.members < b.members; };
  worth_sharing_ = contiguous && std::max_element(hosts.begin(), hosts.end(), fewer)->members > 1;
  place_.alone = hosts.size() == 1;
  place_.slice_owners = std::min_element(hosts.begin(), hosts.end(), fewer)->members;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const int column = rank_ - hosts[i].first;
    if (column < 0 || column >= hosts[i].members) continue;
    for (int member = 0; member < hosts[i].members; ++member) {
      place_.members.push_back(hosts[i].first + member);
      neighbours_.push_back(engine_->hosts().place_of(ranks_[place_.members.back()]));
    }
    if (column >= place_.slice_owners) continue;
    if (i > 0) place_.previous = hosts[i - 1].first + column;
    if (i + 1 < hosts.size()) place_.next = hosts[i + 1].first + column;
  }
}

void MpiChannel::make_ring() {
  const int members = static_cast<int>(place_.members.size()), me = rank_ - place_.members.front();
  const std::int64_t bytes = engine_->limits().slot_bytes;
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(data_, place_.members.front(), rank_, &host), "MPI_Comm_split");
  std::string trouble;
  auto memory = HostMemory::create(host, HostRing::memory_bytes(members, bytes), trouble);
  if (!memory && me == 0) warn_unshared(describe_member(rank_), trouble);
  MPI_Comm_free(&host);
  int all = memory ? 1 : 0;  // one host without: messages for all
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, data_), "MPI_Allreduce");
  if (!all) return;
  ring_ = std::make_unique<HostRing>(std::move(memory), members, me, bytes);
  if (place_.alone) return;
  running_bytes_ = 2 * ring_->slot_bytes();  // float32 for half precisions
  running_ = BufferPool::instance().take(running_bytes_ * HostRing::kDepth);
}

MpiChannel::~MpiChannel() {
  if (!engine_->may_free() || std::uncaught_exceptions() > 0) return;
  MPI_Comm_free(&data_);
  MPI_Comm_free(&heads_);
}

std::vector<int> MpiChannel::world_ranks(std::vector<int> members) const {
  for (int& member : members) member = ranks_[member];
  return members;
}

std::string MpiChannel::describe_members(const std::vector<int>& ranks) const {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(describe_member(rank));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gantry
