#include "gantry/comm/processes/message_receive.h"

#include <fmt/format.h>
#include <utility>

namespace gantry {

MessageReceive::MessageReceive(std::shared_ptr<GroupChannel> channel, int from, const Tag& tag)
    : ProcessOperation(channel->engine()),
      channel_(std::move(channel)),
      from_(from),
      tag_(tag),
      wire_tag_(channel_->tags().encode(tag)) {}

std::string MessageReceive::describe_pending(const std::vector<int>& /*missing*/) {
  return fmt::format("{} from {}", describe(tag_), channel_->describe_member(from_));
}

std::vector<int> MessageReceive::awaited_ranks(const std::vector<int>& /*missing*/) {
  return channel_->world_ranks({from_});
}

std::string MessageReceive::describe_mismatch(int /*peer*/, std::int64_t expected, std::int64_t received) {
  return fmt::format("{} from {} arrived with {} bytes; expected {} bytes, the size that its header announced",
                     describe(tag_), channel_->describe_member(from_), received, expected);
}

}  // namespace gantry
