// Control planes in this process that act as the ranks of a job, and the reports that each of them makes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "gantry/comm/control/control_plane.h"

namespace gantry::testing {

inline constexpr std::chrono::seconds kLong{20};

// The reports of one rank's control plane. The plane's thread writes them and the test reads them, guarded by
// the mutex.
class Reports {
 public:
  ControlEvents events() {
    return {[this](const JobFailure& failure) { add(lost_, failure); },
            [this](const JobFailure& failure) { add(notified_, failure); },
            [this](const std::set<int>& ranks) { add(left_, ranks); },
            [this] { add(stops_, true); },
            [](const JobMembers&) {},
            [] {},
            [this] { add(record_requests_, true); }};
  }
  auto warner() {
    return [this](const std::string& line) { add(warnings_, line); };
  }
  std::optional<JobFailure> lost() { return first(lost_); }
  std::optional<JobFailure> notified() { return first(notified_); }
  // Waits until `count` warnings have arrived, for at most kLong.
  std::vector<std::string> warnings(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLong, [&] { return warnings_.size() >= count; });
    return warnings_;
  }
  // Returns the first set of ranks that was reported to have left.
  std::set<int> left() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return !left_.empty(); }) ? left_.front() : std::set<int>();
  }
  // These wait until another rank wants the job to stop, or has asked for the records, for at most kLong.
  bool heard_stop() { return has_come(stops_); }
  bool heard_record_request() { return has_come(record_requests_); }
  std::size_t stops() { return count(stops_); }
  std::size_t record_requests() { return count(record_requests_); }
  std::atomic<bool> wants_stop{false};  // true: this rank requests the job to stop
  bool silent() {
    const std::lock_guard lock(mutex_);
    return lost_.empty() && notified_.empty() && warnings_.empty();
  }

 private:
  bool has_come(const std::vector<char>& values) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return !values.empty(); });
  }
  std::size_t count(const std::vector<char>& values) {
    const std::lock_guard lock(mutex_);
    return values.size();
  }
  template <class Value>
  void add(std::vector<Value>& values, const std::type_identity_t<Value>& value) {
    {
      const std::lock_guard lock(mutex_);
      values.push_back(value);
    }
    changed_.notify_all();
  }
  std::optional<JobFailure> first(std::vector<JobFailure>& failures) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kLong, [&] { return !failures.empty(); })) return std::nullopt;
    return failures.front();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<JobFailure> lost_, notified_;
  std::vector<std::string> warnings_;
  std::vector<std::set<int>> left_;
  std::vector<char> stops_, record_requests_;
};

inline ControlOptions options_of(int rank, int ranks, Reports& reports) {
  return {.rank = rank,
          .ranks = ranks,
          .heartbeat_seconds = 0.1,
          .lost_after_seconds = 5,
          .timeout_seconds = 20,
          .handshake_seconds = 5,
          .describe_rank = [](int of) { return "rank " + std::to_string(of) + " (tp " + std::to_string(of) + ")"; },
          .warn = reports.warner(),
          .wants_stop = [&reports] { return reports.wants_stop.load(); }};
}

// A job with one control plane per rank.
struct Job {
  explicit Job(int ranks) : reports(static_cast<std::size_t>(ranks)) {
    planes.push_back(ControlPlane::host(options_of(0, ranks, reports[0]), reports[0].events(), "127.0.0.1"));
    for (int rank = 1; rank < ranks; ++rank)
      planes.push_back(
          ControlPlane::join(options_of(rank, ranks, reports[rank]), reports[rank].events(), planes[0]->meeting()));
    for (auto& plane : planes) plane->rendezvous();
  }
  void leave() {
    std::vector<std::future<void>> ends;
    for (auto& plane : planes) ends.push_back(std::async(std::launch::async, [&plane] { plane->leave(); }));
    for (auto& end : ends) end.get();
  }
  std::vector<Reports> reports;
  std::vector<std::unique_ptr<ControlPlane>> planes;
};

inline std::string hello_of(const JobToken& token, int rank, int ranks) {
  return encode_hello({.token = token, .rank = rank, .ranks = ranks, .process = 1, .host = "a"});
}

}  // namespace gantry::testing
