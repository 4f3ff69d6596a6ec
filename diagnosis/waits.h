// Which ranks are blocked in what, and whom each of them waits for, by the records of a job.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "gantry/diagnosis/record_reader.h"

namespace gantry::recorder {

// Why a rank that is waited for has not done its part.
enum class Cause {
  kStopped,     // its process did not run
  kFailed,      // its program ended by an error of its own
  kEnded,       // its program ended
  kNoFile,      // nothing is known of it
  kElsewhere,   // it is blocked in an operation of its own
  kOutside,     // it is in no operation
  kNotWaiting,  // it has done its part, and what follows from it has not arrived
  kWithin       // it is in the same operation, as all members are, and that does not come to its end
};

struct Awaited {
  int rank = 0;
  Cause cause = Cause::kOutside;
  bool in_group = true;  // it has begun to make the group
};

// An operation that a rank is blocked in, or was when the job failed.
struct Blocked {
  int rank = 0;
  const Operation* operation = nullptr;
  double seconds = 0;            // so far, or until it failed
  std::vector<Awaited> awaited;  // who has not done its part
};

// Two ranks that called different things at one place.
struct Mismatch {
  enum class What { kCall, kRoot, kTensor };
  What what = What::kCall;
  int rank = 0, other = 0;
  const Operation* mine = nullptr;
  const Operation* theirs = nullptr;
};

// Times are compared over ranks of one host; over hosts as far as their clocks agree. What happened after the earliest
// file was written, or after the first failure, is left out: it is not known of all ranks.
class Waits {
 public:
  // `job` must outlive this.
  explicit Waits(const JobRecords& job);

  const std::vector<Blocked>& blocked() const { return blocked_; }  // the longest wait first
  const Blocked* blocked_of(int rank) const;                        // the longest of a rank; null if it is in none
  const std::optional<Mismatch>& mismatch() const { return mismatch_; }

  const RankRecord* record(int rank) const;
  const Group& group_of(int rank, const Operation& operation) const;
  // The moment up to which things are told, on that rank's clock: where its program ended, or the wait of others.
  std::int64_t reported_until(const RankRecord& record) const;
  // A rank that ended by an error of its own, not because another one failed.
  bool failed_itself(const RankRecord& record) const;
  // Messages from `from` to `to` in the group that `like` of rank `to` is in, which `to` has not asked for.
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
