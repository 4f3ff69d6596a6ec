// The interface of a kind of mixer: everything about it that can be derived from sizes, without LibTorch. A kind has
// three files: its description here, its module in models/mixers, and the operators of the module in nn. A new kind is
// built by make_mixer() (models/mixers/layer_mixer.cpp); nothing else lists the kinds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gantry/models/described/decoder_shards.h"
#include "gantry/models/described/decoder_spec.h"

namespace gantry::models {

// The work of a mixer for one token, without the matrix multiplications with its parameters: the sum over all tensor
// ranks.
struct MixerWork {
  double flops = 0;      // forward FLOPs, without element-wise operations on single features
  double moved = 0;      // numbers that these element-wise operations and the core read and write in the forward
  double kept = 0;       // numbers that are kept for the backward, in the precision of the model
  double kept_wide = 0;  // further ones in float32 or wider
  double working = 0;    // numbers that only the backward has, in float32 or wider
  // Numbers that context ranks exchange in the forward, before and after the recurrence, without the blocks that
  // several heads read; and those blocks, each of which is sent to every rank that reads it.
  double exchanged = 0;
  std::int64_t shared_blocks = 0;
  double shared_size = 0;  // numbers of a block

  // The numbers of one of `tensor` tensor ranks. If all ranks of `context` were sent equal parts of them, a rank would
  // send as much as it does.
  double exchanged_of(int tensor, int context) const {
    const std::int64_t blocks = shared_blocks > 0 ? std::max<std::int64_t>(shared_blocks / tensor, context) : 0;
    return exchanged / tensor + shared_size * static_cast<double>(blocks);
  }
};

class MixerKind {
 public:
  virtual ~MixerKind() = default;
  MixerKind() = default;
  MixerKind(const MixerKind&) = delete;
  MixerKind& operator=(const MixerKind&) = delete;

  // The name of the kind in the plural, for messages and lists: "short convolutions".
  virtual std::string name() const = 0;
  // The parameters of a layer with `hidden` features, with names relative to the layer. No two kinds, and neither
  // attention nor the MLP, may have a module at the same path.
  virtual std::vector<ParameterShape> parameters(std::int64_t hidden) const = 0;
  // The rules of its modules, with paths relative to the layer. They apply to all layers of this kind.
  virtual std::vector<ModuleShard> shards() const = 0;
  // The largest number of tensor ranks: the number of channels, heads or groups that are not divided.
  virtual std::int64_t largest_tensor() const = 0;
  // The largest number of context ranks, which share the heads or channels of one of `tensor` tensor ranks.
  virtual std::int64_t largest_context(std::int64_t tensor) const { return largest_tensor() / tensor; }
  // Whether tensor ranks can share the tokens between its layers (parallel.sequence_parallel).
  virtual bool shards_sequences() const { return true; }
  virtual MixerWork work() const = 0;
  virtual bool equals(const MixerKind& other) const = 0;
};

// Base class of a kind whose sizes are a comparable struct.
template <class Sizes>
class MixerOf : public MixerKind {
 public:
  explicit MixerOf(Sizes of) : sizes(std::move(of)) {}
  bool equals(const MixerKind& other) const final {
    const auto* same = dynamic_cast<const MixerOf*>(&other);
    return same && same->sizes == sizes;
  }

  const Sizes sizes;
};

}  // namespace gantry::models
