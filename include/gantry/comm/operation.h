// The operations of process groups as plain values, and the interface of their observers. Independent of LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gantry {

// kMakeGroup is the creation of a group, which is an operation of all its members too.
enum class OperationKind : std::uint8_t {
  kMakeGroup,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kBarrier,
  kSend,
  kReceive
};
inline constexpr int kOperationKinds = 9;
const char* name_of(OperationKind kind);   // "all_reduce"
const char* label_of(OperationKind kind);  // "gantry::all_reduce", the label in profiles
bool is_message(OperationKind kind);       // a message between two ranks

// The state of an operation:
//
//   kPosted   in flight, but no thread waits for it
//   kWaiting  the rank is blocked in a wait for it
//   kFailed   a wait for it threw
//   kRefused  the call itself threw, so the operation was never started
enum class OperationState : std::uint8_t { kPosted, kWaiting, kDone, kFailed, kRefused };
const char* name_of(OperationState state);  // "posted"

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };
const char* name_of(ReduceOp op);  // "sum"

// Matches a send with its receive. `entry` is the index of the tensor in a message of several tensors.
struct Tag {
  enum class Kind : std::uint8_t { kUser, kForward, kBackward, kMetadata };
  Kind kind = Kind::kUser;
  int stage = 0;
  int microbatch = 0;
  int entry = 0;
  bool operator==(const Tag&) const = default;
};
const char* name_of(Tag::Kind kind);   // "forward"
std::string describe(const Tag& tag);  // "forward of stage 1, microbatch 3, entry 0"

// A call of a group operation, for observers. The strings are static; `shape` is valid during the call only.
struct ObservedCall {
  int group = 0;  // the observer's number of the group
  OperationKind kind = OperationKind::kBarrier;
  int peer = -1;  // world rank: the other side of a message, or the root of a broadcast; -1: none
  Tag tag = {};
  const char* reduction = "";                // "sum"; "" for none
  const char* dtype = "";                    // "float32"; "" if there is no tensor, or an absent one
  std::span<const std::int64_t> shape = {};  // global shape, if a collective gathers or scatters a tensor
  std::int64_t bytes = 0;                    // bytes that this rank contributes, or expects in a message
};

// Observes the operations of a rank's groups (comm/observed_backend.h). Called from any thread of the rank; must not
// block.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;

  // Called when the rank starts to create a group. Returns a number for the group, negative to ignore it, and in
  // `operation` the number of this operation. Followed by made() on success, or by finish() with kFailed.
  virtual int begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& operation) = 0;
  virtual void made(int group, std::uint64_t operation) = 0;

  static constexpr std::uint64_t kUnobserved = ~std::uint64_t{0};
  // Called when the rank's thread enters the call. Returns a number for the operation, or kUnobserved to ignore it.
  virtual std::uint64_t post(const ObservedCall& call) = 0;
  // enter_wait(): a thread enters a wait for the operation. leave(): it leaves the wait, or the call, normally or by an
  // exception.
  virtual void enter_wait(std::uint64_t operation) = 0;
  virtual void leave(std::uint64_t operation) = 0;
  // Called within a wait if the operation is not complete, so that the rank is blocked.
  virtual void waits(std::uint64_t operation) = 0;
  // Called once, when the operation is complete, has failed or was refused.
  virtual void finish(std::uint64_t operation, OperationState state) = 0;
};

}  // namespace gantry
