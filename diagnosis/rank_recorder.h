// The ring of the last operations of one rank.
//
// Shared between threads; `mutex_` guards everything. A rank's threads hold it for well under a microsecond per write.
// A thread that writes a file copies the full ring under the same mutex, so that it never sees an incomplete entry.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "gantry/diagnosis/record.h"

namespace gantry::recorder {

class RankRecorder final : public OperationObserver {
 public:
  // `entries` must be at least 1.
  RankRecorder(Identity identity, int entries);

  const Identity& identity() const { return identity_; }

  int begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& number) override;
  void made(int group, std::uint64_t number) override;
  // Allocates only if a message has a tag that is new for its peer.
  std::uint64_t post(const ObservedCall& call) override;
  void enter_wait(std::uint64_t) override {}
  void leave(std::uint64_t) override {}
  // Here and below: does nothing if the operation is no longer in the ring.
  void waits(std::uint64_t number) override;
  void finish(std::uint64_t number, State state) override;

  // Called when the rank's program ends; `error` is empty if it ended normally.
  void ended(const std::string& error);

  void was_suspended(std::int64_t from_ns, std::int64_t until_ns);

  // A copy of the current state.
  RankRecord snapshot() const;

 private:
  static constexpr int kMostDims = 12;             // longer shapes are truncated
  static constexpr std::size_t kMostTags = 65536;  // number of different tags that are counted
  struct Entry {
    std::uint64_t number;
    std::int64_t posted_ns, finished_ns, sequence;
    std::array<std::int64_t, kMostDims> shape;
    const char* reduction;
    const char* dtype;
    Tag tag;
    int group, peer, dims;
    Kind kind;
    State state;
  };
  struct MessageKey {
    int group, peer;
    bool sent;
    Tag tag;
    bool operator==(const MessageKey&) const = default;
  };
  struct MessageHash {
    std::size_t operator()(const MessageKey& key) const;
  };

  Entry* find(std::uint64_t number);
  std::int64_t next_sequence(const ObservedCall& call);
  std::uint64_t post_locked(const ObservedCall& call, std::int64_t now);
  Operation operation_of(const Entry& entry) const;

  const Identity identity_;
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  std::uint64_t posted_ = 0;
  std::vector<Group> groups_;
  std::unordered_map<MessageKey, std::int64_t, MessageHash> messages_;  // number of messages by tag
  RankState state_ = RankState::kRunning;
  std::string error_;
  std::int64_t ended_ns_ = 0, stopped_from_ns_ = 0, stopped_until_ns_ = 0;
};

std::int64_t monotonic_ns();
std::int64_t utc_ns();

}  // namespace gantry::recorder
