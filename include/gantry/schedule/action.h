// One action of a rank's schedule, as data. The text form is that of PyTorch's pipelining:
//
//   "2F0"                   stage 2, forward of microbatch 0
//   "2B0", "2I0", "2W0"     full backward, input gradient, weight gradient
//   "2SEND_F0", "2RECV_F0"  a message between stages
//   "(0F7;7B3)OVERLAP_F_B"  an overlapped pair
//   "2UNSHARD", "2RESHARD"  gathers the parameters of stage 2 that are sharded over replicas, and releases them
//   "2REDUCE_GRAD"          reduces the gradients of stage 2 over the replicas
//   "2OFFLOAD0"             moves the activations of the forward of microbatch 0 to host memory
//   "2RELOAD0"              moves them back
//   "2OFFLOAD", "2RELOAD"   the same for the optimizer state of stage 2
//   "2S0"                   a pass of the embedding and head that all ranks share, on the rank whose lowest stage is 2:
//                           IF, IB, S, C or T (schedule/vocabulary_actions.h)
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace gantry::schedule {

enum class ActionKind {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kSendForward,
  kRecvForward,
  kSendBackward,
  kRecvBackward,
  kUnshard,
  kReshard,
  kReduceGradient,
  kOffload,
  kReload,
  kOffloadState,
  kReloadState,
  kEmbeddingForward,
  kEmbeddingBackward,
  kHeadForward,
  kHeadCombine,
  kHeadBackward
};
inline constexpr std::size_t kActionKinds = 20;

// The role of an action. kCompute: computes a microbatch on a stage. kMessage: sends or receives a result. kExtra:
// changes the memory of a stage concurrently with the computation (rules: schedule/extra_actions.h).
enum class ActionRole { kCompute, kMessage, kExtra };
ActionRole role_of(ActionKind kind);

// True for IF, IB, S, C and T.
inline bool is_of_vocabulary(ActionKind kind) { return kind >= ActionKind::kEmbeddingForward; }

inline constexpr int kNoMicrobatch = -1;
bool has_microbatch(ActionKind kind);  // false: the action belongs to the stage, and its microbatch is kNoMicrobatch

// SEND_F of stage s is sent by s to s + 1, and RECV_F of stage s is received by s from s - 1. SEND_B of s goes to s -
// 1, and RECV_B of s comes from s + 1. This is PyTorch's convention.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int microbatch = 0;
  bool overlaps_next = false;  // first part of an overlapped pair; the second one follows directly

  bool operator==(const Action&) const = default;
  bool is_compute() const { return role_of(kind) == ActionRole::kCompute; }
  bool is_message() const { return role_of(kind) == ActionRole::kMessage; }
  bool is_extra() const { return role_of(kind) == ActionRole::kExtra; }
};

std::string to_string(ActionKind kind);       // "F", "B", "I", "W", "SEND_F", ...
std::string to_string(const Action& action);  // "2F0", "2UNSHARD"; the parts of a pair have separate texts
// Parses a CSV cell: two actions for an overlapped pair, none for an empty cell. Throws ConfigError with `where` for
// other texts.
std::vector<Action> parse_cell(const std::string& cell, const std::string& where);

}  // namespace gantry::schedule
