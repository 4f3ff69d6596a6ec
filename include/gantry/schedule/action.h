// One step of a rank's schedule, as data. The text form is that of PyTorch's pipelining: "2F0" is stage 2, forward,
// microbatch 0; F forward, B full backward, I input gradient, W weight gradient; sends and receives are "2SEND_F0";
// "(0F7;7B3)OVERLAP_F_B" is an overlapped pair. "2UNSHARD" gathers the parameters of stage 2 where they are cut over
// replicas, "2RESHARD" releases them, and "2REDUCE_GRAD" sums the stage's gradients over the replicas. "2OFFLOAD0"
// moves what the forward of microbatch 0 keeps to host memory and "2RELOAD0" brings it back; "2OFFLOAD" and "2RELOAD"
// do so with the optimizer's state of the stage. Passes of embedding and head that all ranks share
// (schedule/vocabulary_actions.h) are IF, IB, S, C and T: "2S0" is that of the rank whose lowest stage is 2.
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

// An action computes a microbatch on a stage, or carries what was computed; or it is an extra one: it changes what the
// rank holds of a stage, beside what is computed. Each kind of extra has its rule in schedule/extra_actions.h.
enum class ActionRole { kCompute, kMessage, kExtra };
ActionRole role_of(ActionKind kind);

// IF, IB, S, C and T.
inline bool is_of_vocabulary(ActionKind kind) { return kind >= ActionKind::kEmbeddingForward; }

inline constexpr int kNoMicrobatch = -1;
bool has_microbatch(ActionKind kind);  // else its actions are of the stage, with kNoMicrobatch

// SEND_F of stage s is sent by s to s + 1 and RECV_F of stage s is received by s from s - 1; SEND_B of s goes to s - 1
// and RECV_B of s comes from s + 1, as in PyTorch.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int microbatch = 0;
  bool overlaps_next = false;  // the first of an overlapped pair; its partner follows directly in the row

  bool operator==(const Action&) const = default;
  bool is_compute() const { return role_of(kind) == ActionRole::kCompute; }
  bool is_message() const { return role_of(kind) == ActionRole::kMessage; }
  bool is_extra() const { return role_of(kind) == ActionRole::kExtra; }
};

std::string to_string(ActionKind kind);       // "F", "B", "I", "W", "SEND_F", ...
std::string to_string(const Action& action);  // "2F0", "2UNSHARD"; a pair's parts apart
// The actions of one CSV cell (two for an overlapped pair, none for an empty cell). ConfigError with `where` on
// anything else.
std::vector<Action> parse_cell(const std::string& cell, const std::string& where);

}  // namespace gantry::schedule
