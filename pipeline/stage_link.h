// Point-to-point transport of TensorDicts between pipeline stages: any number of entries, shapes and dtypes.
//
// A description (names, dtypes, shapes, entries that require a gradient) precedes the first forward message
// of a stage, shape key and microbatch, and each message that differs from the previous one. All other
// messages contain only tensors. The receiver does not know in advance that the format has changed, and may
// have posted receives for the previous description. The sender fills them with absent tensors, which signals
// that a new description follows.
// A backward message contains the gradients of the floating entries that require one, in the order of the
// forward message of its microbatch. An undefined gradient is sent as absent.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

struct StageMessage {
  enum class Direction { kForward, kBackward };
  Direction direction = Direction::kForward;
  int stage = 0;  // the sending stage
  int microbatch = 0;
  std::string shape_key;  // equal keys: usually equal formats; a difference costs a description
};

class StageLink {
 public:
  // `pipeline`: the group along pp; ranks below are ranks in it. Not owned.
  explicit StageLink(ProcessGroup& pipeline);

  // Posts the receives of a message early, if its description is known; otherwise does nothing.
  void post(const StageMessage& message, int from);
  // Sends without blocking. `tensors` must not be changed until flush(), or until their receiver has used them.
  void send(const StageMessage& message, int to, const TensorDict& tensors);
  // Waits for a message. Forward: detached tensors that require a gradient if the sender's tensors did.
  // Backward: gradients by entry name. Received tensors are read-only.
  TensorDict receive(const StageMessage& message, int from);
  // Waits for all sends. Backwards that have not arrived by then are no longer expected.
  void flush();
  // Drops completed sends, so that their tensors are freed.
  void collect();

 private:
  struct EntrySpec {
    std::string name;
    TensorSpec spec;
    bool requires_grad = false;
    bool absent = false;
  };
  using Format = std::vector<EntrySpec>;
  struct Description {
    Format forward, backward;
  };
  using DescriptionPtr = std::shared_ptr<const Description>;
  using Key = std::tuple<int, std::string, int>;  // the stage that sends the forward, shape key, microbatch
  using Place = std::pair<int, int>;              // the stage that sends the forward, microbatch

  static Key key_of(const StageMessage& message) { return {message.stage, message.shape_key, message.microbatch}; }
  static DescriptionPtr describe(Format forward);
  static Format format_of(const TensorDict& tensors);
  static bool fits(const Format& format, const TensorDict& tensors);
  static bool can_tell(const Format& format);

  void send_forward(const StageMessage& message, int to, const TensorDict& tensors);
  void send_description(const StageMessage& message, int to, const Format& format);
  DescriptionPtr receive_description(const StageMessage& message, int from);
  // The expected format of a message to this rank; null if it is unknown. For a forward it is the format of
  // the last message with the same key.
  const Format* expected_format(const StageMessage& message) const;
  void send_entries(const StageMessage& message, int to, const Format& format, const TensorDict& tensors);
  std::vector<torch::Tensor> receive_entries(const StageMessage& message, int from);

  ProcessGroup& pipeline_;
  std::map<Key, DescriptionPtr> sent_, received_;  // forwards: the last description of each key
  // Forwards that were sent and received in this step.
  std::map<Place, DescriptionPtr> awaited_backward_, owed_backward_;
  std::map<std::tuple<StageMessage::Direction, int, int>, std::vector<Work>> posted_;
  std::vector<Work> sends_;
};

}  // namespace gantry
