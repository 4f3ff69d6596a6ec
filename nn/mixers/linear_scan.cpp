#include "gantry/nn/mixers/linear_scan.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [samples, tokens, channels] -> [samples, chunks, size, channels], padded with zeros.
torch::Tensor in_chunks(const torch::Tensor& of_tokens, std::int64_t size) {
  const std::int64_t padding = (size - of_tokens.size(1) % size) % size;
  return torch::constant_pad_nd(of_tokens, {0, 0, 0, padding}).unflatten(1, {-1, size});
}

torch::Tensor scan(const torch::Tensor& decay, const torch::Tensor& input, const torch::Tensor& initial,
                   std::int64_t chunk) {
  const std::int64_t size = std::min(chunk, input.size(1));
  const torch::Tensor decays = in_chunks(decay, size), inputs = in_chunks(input, size);
  // The states of each chunk from zero, and the products of its decays so far.
  torch::Tensor states = torch::empty_like(inputs), products = torch::empty_like(decays);
  torch::Tensor state = inputs.select(2, 0), product = decays.select(2, 0);
  for (std::int64_t token = 0; token < size; ++token) {
    if (token > 0) {
      state = torch::addcmul(inputs.select(2, token), decays.select(2, token), state);
      product = product * decays.select(2, token);
    }
    states.select(2, token).copy_(state);
    products.select(2, token).copy_(product);
  }
  torch::Tensor before = torch::empty_like(state), last = initial;
  for (std::int64_t of = 0; of < before.size(1); ++of) {
    before.select(1, of).copy_(last);
    last = torch::addcmul(state.select(1, of), product.select(1, of), last);
  }
  return torch::addcmul(states, products, before.unsqueeze(2)).flatten(1, 2).narrow(1, 0, input.size(1));
}

// The gradients of the states are the same recurrence from the last token to the first.
struct LinearScan : torch::autograd::Function<LinearScan> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& decay, const torch::Tensor& input,
                               const torch::Tensor& initial, std::int64_t chunk) {
    const torch::Tensor states = scan(decay, input, initial, chunk);
    context->save_for_backward({decay, initial, states});
    context->saved_data["chunk"] = chunk;
    return states;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &decay = saved[0], &initial = saved[1], &states = saved[2];
    const std::int64_t later = decay.size(1) - 1;
    const torch::Tensor next = torch::constant_pad_nd(decay.narrow(1, 1, later), {0, 0, 0, 1});
    const torch::Tensor to_states =
        scan(next.flip(1), gradients[0].flip(1), torch::zeros_like(initial), context->saved_data["chunk"].toInt())
            .flip(1);
    const torch::Tensor before = torch::cat({initial.unsqueeze(1), states.narrow(1, 0, later)}, 1);
    return {to_states * before, to_states, to_states.select(1, 0) * decay.select(1, 0), {}};
  }
};

}  // namespace

torch::Tensor linear_scan(const torch::Tensor& decay, const torch::Tensor& input, const torch::Tensor& initial,
                          std::int64_t chunk) {
  return LinearScan::apply(decay, input, initial, chunk);
}

}  // namespace gantry::nn
