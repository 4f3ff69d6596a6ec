// Point-to-point transport of TensorDicts between pipeline stages: any number of entries, shapes and dtypes.
//
// A description (names, dtypes, shapes, which entries require a gradient) goes before the first forward message of a
// stage, shape key and microbatch, and before each one that differs from the last of these; all others carry tensors
// only. The receiver can't know of a change and may have posted receives of the former description: the sender fills
// those with absent tensors, which says that a new description follows. A backward message has the floating entries
// that require a gradient, in the order of the forward message of its microbatch; an undefined gradient is sent as
// absent.
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
  std::string shape_key;  // messages of one key look alike as a rule: what differs costs a description
};

class StageLink {
 public:
  // `pipeline`: the group along pp; ranks below are ranks in it. Not owned.
  explicit StageLink(ProcessGroup& pipeline);

  // Posts the receives of a message early, if its description is known; otherwise does nothing.
  void post(const StageMessage& message, int from);
  // Sends without blocking. `tensors` must not be changed until flush(), or until their receiver has used them.
  void send(const StageMessage& message, int to, const TensorDict& tensors);
  // Waits for a message. Forward: detached tensors with requires_grad set as the sender's had. Backward: by entry name.
  // Received tensors are read-only.
  TensorDict receive(const StageMessage& message, int from);
  // Waits for all sends. Forwards whose backward has not come by then have none.
  void flush();
  // Drops finished sends, so that what they hold is freed.
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
  // What a message that this rank receives looks like, as far as is known: null, or the former one's of its key.
  const Format* expected_format(const StageMessage& message) const;
  void send_entries(const StageMessage& message, int to, const Format& format, const TensorDict& tensors);
  std::vector<torch::Tensor> receive_entries(const StageMessage& message, int from);

  ProcessGroup& pipeline_;
  std::map<Key, DescriptionPtr> sent_, received_;                     // of forwards; the last of each key
  std::map<Place, DescriptionPtr> awaited_backward_, owed_backward_;  // of forwards sent and received in this step
  std::map<std::tuple<StageMessage::Direction, int, int>, std::vector<Work>> posted_;
  std::vector<Work> sends_;
};

}  // namespace gantry
