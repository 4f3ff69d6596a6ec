// The blocked ranks of a job, their operations, and the ranks that each of them waits for, from the records.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "gantry/diagnosis/record_reader.h"

namespace gantry::recorder {

// The reason why an awaited rank has not done its part.
enum class Cause {
  kStopped,     // its process was suspended
  kFailed,      // its program ended with an error of its own
  kEnded,       // its program ended
  kNoFile,      // it has no record
  kElsewhere,   // it is blocked in another operation
  kOutside,     // it is in no operation
  kNotWaiting,  // it has done its part, but the result has not arrived
  kWithin       // it is in the same operation, like all members, but the operation does not complete
};

struct Awaited {
  int rank = 0;
  Cause cause = Cause::kOutside;
  bool in_group = true;  // it has started to create the group
};

// An operation that a rank is blocked in, or was blocked in when the job failed.
struct Blocked {
  int rank = 0;
  const Operation* operation = nullptr;
  double seconds = 0;            // until now, or until the failure
  std::vector<Awaited> awaited;  // ranks that have not done their part
};

// Two ranks that made different calls at the same position.
struct Mismatch {
  enum class What { kCall, kRoot, kTensor };
  What what = What::kCall;
  int rank = 0, other = 0;
  const Operation* mine = nullptr;
  const Operation* theirs = nullptr;
};

// Times of ranks on one host are compared directly, times of several hosts as far as their clocks agree. Events after
// the first file was written or after the first failure are left out, because they are not known for all ranks.
class Waits {
 public:
  // Keeps a reference to `job`.
  explicit Waits(const JobRecords& job);

  const std::vector<Blocked>& blocked() const { return blocked_; }  // the longest wait first
  const Blocked* blocked_of(int rank) const;  // the longest wait of a rank; null if it does not wait
  const std::optional<Mismatch>& mismatch() const { return mismatch_; }

  const RankRecord* record(int rank) const;
  const Group& group_of(int rank, const Operation& operation) const;
  // The moment up to which events are reported, on that rank's clock: the end of its program, or the wait of others.
  std::int64_t reported_until(const RankRecord& record) const;
  // A rank that ended with an error of its own, not because another rank failed.
  bool failed_itself(const RankRecord& record) const;
  // Messages from `from` to `to`, in the group of the operation `like` on rank `to`, that `to` has not requested.
  std::vector<const Operation*> unasked(int from, int to, const Operation& like) const;
  // The same over all groups.
  std::vector<const Operation*> unasked(int from, int to) const;

 private:
  using Key = std::tuple<int, bool, int, Tag::Kind, int, int, int, std::int64_t>;
  static Key key_of(const Operation& operation, int group, bool sent, int peer);

  std::int64_t common_time(const RankRecord& record, std::int64_t ns) const;
  const Operation* find(const RankRecord& record, const Key& key) const;
  int place_of(const RankRecord& record, const Group& group) const;
  void find_blocked();
  void find_awaited(Blocked& blocked);
  void look_at(Blocked& blocked, int other);
  bool has_called(const Blocked& blocked, int other) const;
  std::optional<Mismatch::What> difference(const Operation& mine, const Operation& theirs) const;
  Cause cause_of(int rank) const;
  bool has_ended(const RankRecord& record) const;
  bool was_stopped(const RankRecord& record) const;
  bool was_asked(const RankRecord& sender, const Operation& send) const;

  const JobRecords& job_;
  bool one_host_ = true;
  std::int64_t horizon_ns_ = 0, first_failure_ns_ = 0;
  std::map<int, std::map<Key, const Operation*>> operations_;  // by rank
  std::vector<Blocked> blocked_;
  std::optional<Mismatch> mismatch_;
};

}  // namespace gantry::recorder
