#include "gantry/comm/operation.h"

#include <cstring>
#include <fmt/format.h>

namespace gantry {

const char* label_of(OperationKind kind) {
  static constexpr const char* kLabels[kOperationKinds] = {
      "gantry::make_group",     "gantry::all_reduce", "gantry::all_gather",
      "gantry::reduce_scatter", "gantry::broadcast",  "gantry::all_to_all",
      "gantry::barrier",        "gantry::send",       "gantry::recv"};
  return kLabels[static_cast<int>(kind)];
}

const char* name_of(OperationKind kind) { return label_of(kind) + std::strlen("gantry::"); }

bool is_message(OperationKind kind) { return kind == OperationKind::kSend || kind == OperationKind::kReceive; }

const char* name_of(OperationState state) {
  static constexpr const char* kNames[] = {"posted", "waiting", "done", "failed", "refused"};
  return kNames[static_cast<int>(state)];
}

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "max", "min"};
  return kNames[static_cast<int>(op)];
}

const char* name_of(Tag::Kind kind) {
  static constexpr const char* kNames[] = {"message", "forward", "backward", "metadata"};
  return kNames[static_cast<int>(kind)];
}

std::string describe(const Tag& tag) {
  return fmt::format("{} of stage {}, microbatch {}, entry {}", name_of(tag.kind), tag.stage, tag.microbatch,
                     tag.entry);
}

}  // namespace gantry
