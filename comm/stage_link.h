// Point-to-point transport of TensorDicts between pipeline stages: any number of entries, shapes and dtypes.
//
// What a message looks like (names, dtypes, shapes, which entries require a gradient) travels once for each direction,
// stage and shape key, before its first message; from then on messages carry tensors only. A backward message has the
// floating entries that require a gradient, in the forward's order; an undefined gradient is sent as absent.
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
  std::string shape_key;  // equal keys promise equal shapes, dtypes and gradient flags
};

class StageLink {
 public:
  // `pipeline`: the group along pp; ranks below are ranks in it. Not owned.
  explicit StageLink(ProcessGroup& pipeline);

  // Posts the receives of a message early, if its metadata is known; otherwise does nothing.
  void post(const StageMessage& message, int from);
  // Sends without blocking. `tensors` must not be changed until flush(), or until their receiver has used them.
  void send(const StageMessage& message, int to, const TensorDict& tensors);
  // Waits for a message. Forward: detached tensors with requires_grad set as the sender's had. Backward: by entry name.
  // Received tensors are read-only.
  TensorDict receive(const StageMessage& message, int from);
  // Waits for all sends.
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
  struct Key {
    int stage;  // that sends the forward
    std::string shape_key;
    auto operator<=>(const Key&) const = default;
  };

  static Format describe_format(const TensorDict& tensors);
  static Format gradient_format(const Format& forward);
  void send_format(const StageMessage& message, int to, const Format& format);
  Format receive_format(const StageMessage& message, int from);
  // What a message that this rank receives looks like, if that is known already.
  const Format* known_format(const StageMessage& message) const;
  void send_entries(const StageMessage& message, int to, const Format& format, const TensorDict& tensors);

  ProcessGroup& pipeline_;
  std::map<Key, Format> sent_formats_, sent_gradients_;  // of forwards sent, and of the gradients that come back
  std::map<Key, Format> received_formats_,
      received_gradients_;  // of forwards received, and of the gradients that go back
  std::map<std::tuple<StageMessage::Direction, int, int>, std::vector<Work>> posted_;
  std::vector<Work> sends_;
};

}  // namespace gantry
