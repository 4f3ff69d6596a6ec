// An embedding and a head that the ranks of a pipeline share (vocabulary_passes.h).
#pragma once

#include "gantry/plugins/step/step_part.h"
#include "gantry/plugins/vocabulary_passes.h"

namespace gantry {

class VocabularyPart final : public StepPart {
 public:
  VocabularyPart(const SharedVocabulary& shared, StepCore& core, const schedule::Schedule& schedule,
                 const VocabularyPasses::Options& options)
      : core_(core), passes_(shared, core.microbatches, schedule, options) {}

  TensorDict model(ForwardCall& call, const NextTensors& next) override {
    if (call.is_first) call.given.set("embedded", passes_.embedded(call.microbatch));
    return next();
  }
  bool takes_outputs(const ForwardCall& call, TensorDict& outputs, StageOutput& made) override {
    passes_.give_hidden(call.microbatch, outputs.at("hidden"));
    if (core_.settings.needs_gradients) made.boundary = std::move(outputs);
    return true;
  }
  TensorDict backward(BackwardCall& call, const NextTensors& next) override {
    if (call.is_last) call.gradients = {{"hidden", passes_.hidden_gradient(call.microbatch)}};
    TensorDict made = next();
    if (call.is_first) passes_.give_embedding_gradient(call.microbatch);
    return made;
  }
  void pass(PassCall& call, const Next& /*next*/) override { passes_.run(call.kind, call.microbatch); }
  void skip(schedule::ActionKind kind, const StageCall& call) override {
    using enum schedule::ActionKind;
    passes_.give_up();
    if (schedule::is_of_vocabulary(kind)) return passes_.run(kind, call.microbatch);
    if (kind == kForward && call.is_last) passes_.give_hidden(call.microbatch, {});
    if ((kind == kBackward || kind == kInputGradient) && call.is_first)
      passes_.give_embedding_gradient(call.microbatch);
  }
  void finish(bool done) override {
    if (!done) return;
    auto [sums, counts] = passes_.losses();
    core_.losses.set(std::move(sums), std::move(counts));
  }
  std::optional<TensorDict> outputs() override { return passes_.outputs(); }

 private:
  StepCore& core_;
  VocabularyPasses passes_;
};

}  // namespace gantry
