// One step of a rank's schedule, as data. The text form is that of PyTorch's pipelining: "2F0" is stage 2, forward,
// microbatch 0; F forward, B full backward, I input gradient, W weight gradient; sends and receives are "2SEND_F0";
// "(0F7;7B3)OVERLAP_F_B" is an overlapped pair.
#pragma once

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
  kRecvBackward
};

// SEND_F of stage s is sent by s to s + 1 and RECV_F of stage s is received by s from s - 1; SEND_B of s goes to s - 1
// and RECV_B of s comes from s + 1, as in PyTorch.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int microbatch = 0;
  bool overlaps_next = false;  // the first of an overlapped pair; its partner follows directly in the row

  bool operator==(const Action&) const = default;
  bool is_compute() const { return kind <= ActionKind::kWeightGradient; }
};

std::string to_string(ActionKind kind);       // "F", "B", "I", "W", "SEND_F", ...
std::string to_string(const Action& action);  // "2F0"; a pair's parts apart
// The actions of one CSV cell (two for an overlapped pair, none for an empty cell). ConfigError with `where` on
// anything else.
std::vector<Action> parse_cell(const std::string& cell, const std::string& where);

}  // namespace gantry::schedule
