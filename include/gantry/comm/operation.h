// The operations of process groups as plain values, and who may watch them; free of LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gantry {

// kMakeGroup is the joining of a group, which is an operation of all its members too.
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
const char* label_of(OperationKind kind);  // "gantry::all_reduce", as profilers see it
bool is_message(OperationKind kind);       // of two ranks

// kPosted: under way, nobody waits for it. kWaiting: the rank is blocked in it. kFailed: a wait for it threw. kRefused:
// the call itself threw, so nothing was ever under way.
enum class OperationState : std::uint8_t { kPosted, kWaiting, kDone, kFailed, kRefused };
const char* name_of(OperationState state);  // "posted"

enum class ReduceOp : std::uint8_t { kSum, kMax, kMin };
const char* name_of(ReduceOp op);  // "sum"

// Matches a send with its recv. `entry` numbers the tensors of one message.
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

// An operation of a group as it begins, for who observes it. Texts are of static life; the shape is valid during the
// call.
struct ObservedCall {
  int group = 0;  // as the observer numbers it
  OperationKind kind = OperationKind::kBarrier;
  int peer = -1;  // world rank: the other side of a message, a broadcast's root; -1 for none
  Tag tag = {};
  const char* reduction = "";                // "sum"; "" for none
  const char* dtype = "";                    // "float32"; "" for no tensor, or an absent one
  std::span<const std::int64_t> shape = {};  // of the whole tensor, where a collective gathers or scatters one
  std::int64_t bytes = 0;                    // that this rank hands in, or expects of a message
};

// Who is told what a rank's groups do (comm/observed_backend.h). Called from any of the rank's threads; must not block.
class OperationObserver {
 public:
  virtual ~OperationObserver() = default;

  // The rank begins to make a group; gives its number, negative where nothing of it is to be told, and that of the
  // operation of making it. made() when it has come out, or finish() of `operation` with kFailed.
  virtual int begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t& operation) = 0;
  virtual void made(int group, std::uint64_t operation) = 0;

  static constexpr std::uint64_t kUnobserved = ~std::uint64_t{0};
  // The rank's thread enters the call. Gives the operation's number, kUnobserved where nothing more is to be told of
  // it.
  virtual std::uint64_t post(const ObservedCall& call) = 0;
  // A thread enters a wait for it. It leaves that, and the call, with what it came for or with an exception.
  virtual void enter_wait(std::uint64_t operation) = 0;
  virtual void leave(std::uint64_t operation) = 0;
  // Within a wait: it is not done, so the rank is blocked in it now.
  virtual void waits(std::uint64_t operation) = 0;
  // It is done, failed or refused. Once.
  virtual void finish(std::uint64_t operation, OperationState state) = 0;
};

}  // namespace gantry
