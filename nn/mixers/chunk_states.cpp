#include "gantry/nn/mixers/chunk_states.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct DecayStates : torch::autograd::Function<DecayStates> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& decay, const torch::Tensor& local,
                               const torch::Tensor& initial) {
    const torch::Tensor factors = decay.unsqueeze(-1).unsqueeze(-1);
    torch::Tensor before = torch::empty_like(local), state = initial;
    for (std::int64_t chunk = 0; chunk < local.size(1); ++chunk) {
      before.select(1, chunk).copy_(state);
      state = torch::addcmul(local.select(1, chunk), factors.select(1, chunk), state);
    }
    context->save_for_backward({decay, before});
    return {before, state};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor factors = saved[0].unsqueeze(-1).unsqueeze(-1), &before = saved[1];
    torch::Tensor to_local = torch::empty_like(before), to_state = gradients[1];
    for (std::int64_t chunk = before.size(1) - 1; chunk >= 0; --chunk) {
      to_local.select(1, chunk).copy_(to_state);
      to_state = torch::addcmul(gradients[0].select(1, chunk), factors.select(1, chunk), to_state);
    }
    const torch::Tensor to_decay = (to_local * before).sum(torch::IntArrayRef{-2, -1});
    return {at::sum_to(to_decay, saved[0].sizes()), to_local, to_state};
  }
};

struct WriteDeltas : torch::autograd::Function<WriteDeltas> {
  static variable_list forward(AutogradContext* context, const torch::Tensor& decay, const torch::Tensor& w,
                               const torch::Tensor& u, const torch::Tensor& keys, const torch::Tensor& initial) {
    const std::int64_t chunks = u.size(1);
    const torch::Tensor factors = decay.unsqueeze(-1);
    torch::Tensor before = torch::empty({u.size(0), chunks, u.size(2), keys.size(-1), u.size(-1)}, u.options());
    torch::Tensor values = torch::empty_like(u), state = initial;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      before.select(1, chunk).copy_(state);
      const torch::Tensor written = u.select(1, chunk) - torch::matmul(w.select(1, chunk), state);
      values.select(1, chunk).copy_(written);
      state = torch::matmul(keys.select(1, chunk).mT(), written).addcmul_(factors.select(1, chunk), state);
    }
    context->save_for_backward({decay, w, keys, before, values});
    return {before, state, values};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor factors = saved[0].unsqueeze(-1), &w = saved[1], &keys = saved[2], &before = saved[3];
    torch::Tensor to_next = torch::empty_like(before), to_values = torch::empty_like(saved[4]);
    torch::Tensor to_state = gradients[1];
    for (std::int64_t chunk = before.size(1) - 1; chunk >= 0; --chunk) {
      to_next.select(1, chunk).copy_(to_state);
      const torch::Tensor written = gradients[2].select(1, chunk) + torch::matmul(keys.select(1, chunk), to_state);
      to_values.select(1, chunk).copy_(written);
      to_state = torch::addcmul(gradients[0].select(1, chunk), factors.select(1, chunk), to_state)
                     .sub_(torch::matmul(w.select(1, chunk).mT(), written));
    }
    torch::Tensor to_decay = (to_next * before).sum(-1);
    return {at::sum_to(to_decay, saved[0].sizes()), torch::matmul(to_values, before.mT()).neg_(), to_values,
            torch::matmul(saved[4], to_next.mT()), to_state};
  }
};

}  // namespace

ChunkStates decayed_states(const torch::Tensor& decay, const torch::Tensor& local, const torch::Tensor& initial) {
  const variable_list states = DecayStates::apply(decay, local, initial);
  return {states[0], states[1]};
}

DeltaStates delta_states(const DeltaWrites& writes, const torch::Tensor& initial) {
  const variable_list states = WriteDeltas::apply(writes.decay, writes.w, writes.u, writes.keys, initial);
  return {{states[0], states[1]}, states[2]};
}

torch::Tensor state_or_zeros(const torch::Tensor& state, torch::IntArrayRef shape, const torch::Tensor& like) {
  return state.defined() ? state.to(like.scalar_type()) : torch::zeros(shape, like.options());
}

}  // namespace gantry::nn
