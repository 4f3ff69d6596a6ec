#include "gantry/comm/recorder/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gantry::recorder {

const char* name_of(Kind kind) {
  static constexpr const char* kNames[] = {
      "make_group", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier", "send", "recv"};
  return kNames[static_cast<int>(kind)];
}

bool is_message(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

const char* name_of(State state) {
  static constexpr const char* kNames[] = {"posted", "waiting", "done", "failed", "refused"};
  return kNames[static_cast<int>(state)];
}

const char* name_of(MessageTag::Kind kind) {
  static constexpr const char* kNames[] = {"message", "forward", "backward", "metadata"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(RankState state) {
  static constexpr const char* kNames[] = {"running", "ended", "failed"};
  return kNames[static_cast<int>(state)];
}

std::string describe(const MessageTag& tag) {
  return fmt::format("{} of stage {}, microbatch {}, entry {}", name_of(tag.kind), tag.stage, tag.microbatch,
                     tag.entry);
}

std::string describe_tensor(const Operation& operation) {
  if (operation.dtype.empty()) return "nothing";
  return fmt::format("{} [{}]", operation.dtype, fmt::join(operation.shape, ", "));
}

std::string describe(const Operation& operation, const Group& group) {
  if (is_message(operation.kind)) return describe(operation.tag);
  if (operation.kind == Kind::kMakeGroup) return fmt::format("the making of group '{}'", group.label);
  return fmt::format("{} {} of group '{}'", name_of(operation.kind), operation.sequence, group.label);
}

}  // namespace gantry::recorder
