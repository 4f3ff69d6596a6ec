#include "gantry/plugins/step/interleaved_part.h"

#include "gantry/core/base/steady_seconds.h"
#include "gantry/plugins/step/error_place.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

StageOutput InterleavedPart::forward(ForwardCall& call, const NextForward& next) {
  const auto split = backwards_[{call.stage, call.microbatch}] = std::make_shared<SplitBackward>();
  call.scope.watch = split;
  split->begin_forward(&call.added, [this, &call] { step_of_partner(call); });
  return next();
}

TensorDict InterleavedPart::model(ForwardCall& call, const NextTensors& next) {
  TensorDict result = next();
  backwards_.at({call.stage, call.microbatch})->end_forward(result);
  return result;
}

bool InterleavedPart::offer(const BackwardCall& call) {
  const auto found = backwards_.find({call.stage, call.microbatch});
  if (found == backwards_.end() || call.completes) return false;
  found->second->begin(backward_roots(call.output, call.gradients));
  partner_ = Partner{call, call.is_split, call.store};
  return true;
}

void InterleavedPart::step_of_partner(ForwardCall& meanwhile) {
  if (!partner_) return;
  const double begin = steady_seconds();
  const ForwardScope apart(Forward{});  // default settings, not those of the forward that waits
  SplitBackward& split = *backwards_.at({partner_->call.stage, partner_->call.microbatch});
  partner_->store->collect(partner_->is_split);
  const bool more = with_place("backward", core_.model, partner_->call, {}, {}, [&] { return split.step(); });
  partner_->store->collect(false);
  if (!more) partner_.reset();
  meanwhile.other_seconds += steady_seconds() - begin;
}

TensorDict InterleavedPart::backward(BackwardCall& call, const NextTensors& next) {
  const auto found = backwards_.find({call.stage, call.microbatch});
  if (found == backwards_.end()) return next();
  SplitBackward& split = *found->second;
  if (!split.has_begun()) split.begin(backward_roots(call.output, call.gradients));
  while (split.step()) {
  }
  backwards_.erase(found);
  partner_.reset();
  return gradients_of(call.input);
}

}  // namespace gantry
