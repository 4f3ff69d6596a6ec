#include "gantry/comm/processes/group_channel.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <thread>

#include "gantry/comm/control/timers.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookForEnded{100};
constexpr std::chrono::microseconds kLookForMembers{50};

}  // namespace

GroupChannel::GroupChannel(std::shared_ptr<ProcessEngine> engine, std::string label, std::vector<int> ranks)
    : engine_(std::move(engine)),
      label_(std::move(label)),
      ranks_(std::move(ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), engine_->rank()) - ranks_.begin())),
      tags_(tag_layout(engine_->transport().largest_tag())),
      data_tags_(engine_->transport().largest_tag()),
      waited_(fmt::format("{} waited {} s for the ranks {} to make the group '{}' with it", describe_member(rank_),
                          engine_->timeout_seconds(), fmt::join(ranks_, ", "), label_)) {
  find_hosts();
  HostMemory::Offer offer;
  if (worth_sharing_ && rank_ == place_.members.front()) offer = HostMemory::Offer(ring_bytes());
  const std::vector<RollWord> words =
      call_roll({.channel = rank_ == 0 ? engine_->new_channels() : 0, .memory = offer.address()});
  Transport& transport = engine_->transport();
  heads_ = transport.open_channel(ranks_, words[0].channel, waited_);
  data_ = transport.open_channel(ranks_, words[0].channel + 1, waited_);
  if (worth_sharing_) make_ring(words[static_cast<std::size_t>(place_.members.front())].memory);
}

// Returns the words of all members. At the deadline the error names the missing members.
std::vector<RollWord> GroupChannel::call_roll(const RollWord& mine) {
  const auto roll = std::make_shared<RollCall>(engine_, ranks_, rank_, mine);
  engine_->post(roll);
  // The error of the first member names the missing members, so the others wait longer.
  const double seconds = engine_->timeout_seconds() + (rank_ == 0 ? 0 : control::kFirstMemberSeconds);
  const auto patience = std::chrono::duration<double>(seconds);
  auto deadline = Clock::now() + patience;
  auto next_look = Clock::now() + kLookForEnded;
  bool first_is_here = false;
  while (!roll->done()) {  // throws if another member has reported a failure
    const auto now = Clock::now();
    if (roll->first_is_here() && !std::exchange(first_is_here, true)) deadline = now + patience;
    if (now > next_look || now > deadline) {
      next_look = now + kLookForEnded;
      const std::vector<int> missing = roll->missing();
      const int ended = engine_->failures().find_ended(missing);
      if (!missing.empty() && (ended >= 0 || now > deadline)) end_roll(*roll, missing, ended);
    }
    std::this_thread::sleep_for(kLookForMembers);
  }
  return roll->words();
}

void GroupChannel::end_roll(const RollCall& roll, const std::vector<int>& missing, int ended) {
  std::vector<std::string> names;
  for (const int rank : missing) names.push_back(engine_->describe_rank(rank));
  const std::string absent = fmt::format("{}", fmt::join(names, ", "));
  const std::string what = fmt::format("the ranks {} to make the group '{}', which {} has not joined",
                                       fmt::join(ranks_, ", "), label_, absent);
  engine_->fail(PeerError::kExitCode,
                ended >= 0             ? ended_early_text(describe_member(rank_), what, engine_->describe_rank(ended))
                : roll.first_is_here() ? fmt::format("{}; {} has joined and waits too", waited_, absent)
                                       : fmt::format("{}; {} has not joined", waited_, absent));
  engine_->failures().throw_if_failed();
  throw InternalError({"group " + label_, "a failed roll call has no failure", "", ""});
}

// All members get the same result, except for their own place.
void GroupChannel::find_hosts() {
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

std::size_t GroupChannel::ring_bytes() const {
  return HostRing::memory_bytes(static_cast<int>(place_.members.size()), engine_->limits().slot_bytes);
}

void GroupChannel::make_ring(const HostMemory::Address& address) {
  const int members = static_cast<int>(place_.members.size()), me = rank_ - place_.members.front();
  int error = 0;
  auto memory = HostMemory::open(address, ring_bytes(), error);
  const std::vector<RollWord> words = call_roll({.error = error});
  const auto failed = [](const RollWord& word) { return word.error != 0; };
  const auto first = words.begin() + place_.members.front();
  if (const auto one = std::find_if(first, first + members, failed); me == 0 && one != first + members)
    warn_unshared(describe_member(rank_), HostMemory::describe_trouble(address, ring_bytes(), one->error));
  if (std::any_of(words.begin(), words.end(), failed)) return;  // the group uses messages then
  const std::int64_t bytes = engine_->limits().slot_bytes;
  ring_ = std::make_unique<HostRing>(std::move(memory), members, me, bytes);
  if (place_.alone) return;
  running_bytes_ = 2 * ring_->slot_bytes();  // float32 for half precisions
  running_ = BufferPool::instance().take(running_bytes_ * HostRing::kDepth);
}

GroupChannel::~GroupChannel() {
  if (!engine_->failures().failed() && std::uncaught_exceptions() == 0) return;
  (void)data_.release();
  (void)heads_.release();
}

std::vector<int> GroupChannel::world_ranks(std::vector<int> members) const {
  for (int& member : members) member = ranks_[member];
  return members;
}

std::string GroupChannel::describe_members(const std::vector<int>& ranks) const {
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(describe_member(rank));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace gantry
