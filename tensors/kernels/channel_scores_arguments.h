// The arguments of the operators of scores by channels as plain pointers, for kernels of the host and of devices.
#pragma once

#include "gantry/tensors/kernels/channel_scores_element.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::kernels {

template <class A>
ScoredTokens<A> scored_tokens(const at::Tensor& query, const at::Tensor& key, const at::Tensor& sums) {
  return {.blocks = query.numel() / (query.size(-2) * query.size(-1)),
          .tokens = query.size(-2),
          .channels = query.size(-1),
          .query = query.const_data_ptr<A>(),
          .key = key.const_data_ptr<A>(),
          .sums = sums.const_data_ptr<A>()};
}

// `to`: the gradients of query, key and sums.
template <class A>
ScoredGradients<A> scored_gradients(at::TensorList to, const at::Tensor& of_query, const at::Tensor& of_key) {
  return {.of_query = of_query.const_data_ptr<A>(),
          .of_key = of_key.const_data_ptr<A>(),
          .query = to[0].data_ptr<A>(),
          .key = to[1].data_ptr<A>(),
          .sums = to[2].data_ptr<A>()};
}

}  // namespace gantry::kernels
