#include "race_checker.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "device_memory.h"

namespace gantry::testing {
namespace {

std::mutex races_mutex;  // guards the next
std::vector<std::string>& races = *new std::vector<std::string>;

std::uint64_t at(const Clock& clock, int stream) {
  return static_cast<std::size_t>(stream) < clock.size() ? clock[static_cast<std::size_t>(stream)] : 0;
}

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

const char* verb(bool writes) { return writes ? "writes" : "reads"; }

}  // namespace

RaceChecker& race_checker(int device) {
  static auto& all = *new std::array<RaceChecker, kPretendDevices>;  // outlives every thread
  return all.at(static_cast<std::size_t>(device));
}

std::vector<std::string> take_races() {
  const std::lock_guard lock(races_mutex);
  return std::exchange(races, {});
}

void report_race(const std::string& race) {
  const std::lock_guard lock(races_mutex);
  if (std::find(races.begin(), races.end(), race) == races.end()) races.push_back(race);
}

Clock& RaceChecker::clock_of(int stream) {
  const auto number = static_cast<std::size_t>(stream);
  if (clocks_.size() <= number) clocks_.resize(number + 1);
  Clock& clock = clocks_[number];
  if (clock.size() <= number) clock.resize(number + 1);
  return clock;
}

RaceChecker::Block* RaceChecker::block_at(const char* address) {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return address < block.end ? &block : nullptr;
}

void RaceChecker::launch(int stream, const std::vector<Access>& accesses, const std::string& what) {
  const std::lock_guard lock(mutex_);
  Clock& clock = clock_of(stream);
  join(clock, host_);
  const std::uint64_t tick = ++clock[static_cast<std::size_t>(stream)];
  for (const Access& access : accesses) {
    const char* begin = static_cast<const char*>(access.begin);
    // Accesses of other processes to their memory are not visible here.
    if (access.bytes == 0 || !is_device_memory(begin) || is_peer_memory(begin)) continue;
    if (Block* block = block_at(begin))
      check(*block, {begin, begin + access.bytes, stream, tick, access.writes, what});
    else
      report_race(fmt::format("stream {} {} in {} what was freed before", stream, verb(access.writes), what));
  }
}

void RaceChecker::check(Block& block, const Past& access) {
  const Clock& clock = clock_of(access.stream);
  std::erase_if(block.past, [&](const Past& past) {
    const bool overlaps = past.begin < access.end && access.begin < past.end;
    if (!overlaps) return false;
    const bool ordered = at(clock, past.stream) >= past.tick;
    if (!ordered && (access.writes || past.writes))
      report_race(fmt::format("stream {} {} in {} what stream {} {} in {}: no event wait between", access.stream,
                              verb(access.writes), access.what, past.stream, verb(past.writes), past.what));
    // Drop `past` if this access covers it: accesses that are ordered after this one are ordered after `past`
    // too.
    const bool covered = access.begin <= past.begin && past.end <= access.end;
    return covered && (ordered || access.writes) && (access.writes || !past.writes);
  });
  block.past.push_back(access);
}

Clock RaceChecker::now(int stream) {
  const std::lock_guard lock(mutex_);
  Clock& clock = clock_of(stream);
  join(clock, host_);
  return clock;
}

void RaceChecker::stream_waits(int stream, const Clock& clock) {
  const std::lock_guard lock(mutex_);
  join(clock_of(stream), clock);
}

void RaceChecker::host_waits(const Clock& clock) {
  const std::lock_guard lock(mutex_);
  join(host_, clock);
}

void RaceChecker::allocated(const void* begin, std::size_t bytes, int stream) {
  const std::lock_guard lock(mutex_);
  const char* first = static_cast<const char*>(begin);
  // The allocation counts as a write on the owner's stream, because earlier kernels there may still use the
  // memory.
  const std::uint64_t tick = ++clock_of(stream)[static_cast<std::size_t>(stream)];
  blocks_[first] = {first + bytes, stream, {{first, first + bytes, stream, tick, true, "its allocation"}}};
}

void RaceChecker::freed(const void* begin, const std::set<int>& recorded) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<const char*>(begin));
  if (found == blocks_.end()) return;
  const Block& block = found->second;
  Clock owner = clock_of(block.stream);
  join(owner, host_);
  for (const Past& past : block.past)
    if (past.stream != block.stream && !recorded.contains(past.stream) && at(owner, past.stream) < past.tick)
      report_race(
          fmt::format("memory of stream {} is freed while stream {} {} it in {}: neither waited for nor recorded",
                      block.stream, past.stream, verb(past.writes), past.what));
  blocks_.erase(found);
}

}  // namespace gantry::testing
