#include "gantry/tensors/kernels/channel_scores.h"

#include <ATen/Parallel.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/kernels/channel_scores_arguments.h"
#include "gantry/tensors/kernels/channel_scores_loops.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry::kernels {
namespace {

void scores_on_cpu(at::Tensor& of_query, at::Tensor& of_key, const at::Tensor& query, const at::Tensor& key,
                   const at::Tensor& sums) {
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "gantry::channel_scores_", [&] {
    const auto of = scored_tokens<scalar_t>(query, key, sums);
    const ChannelScores<scalar_t> to{of_query.data_ptr<scalar_t>(), of_key.data_ptr<scalar_t>()};
    at::parallel_for(0, of.blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) score_block(of, to, block);
    });
  });
}

void scores_backward_on_cpu(at::TensorList to, const at::Tensor& of_query, const at::Tensor& of_key,
                            const at::Tensor& query, const at::Tensor& key, const at::Tensor& sums) {
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "gantry::channel_scores_backward_", [&] {
    const auto of = scored_tokens<scalar_t>(query, key, sums);
    const auto gradients = scored_gradients<scalar_t>(to, of_query, of_key);
    at::parallel_for(0, of.blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) score_block_backward(of, gradients, block);
    });
  });
}

// The meta device: there is nothing to compute.
void no_scores(at::Tensor&, at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {}
void no_scores_backward(at::TensorList, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&) {}

void check_scored(const ChannelTokens& of) {
  for (const torch::Tensor& tensor : {of.query, of.key, of.sums})
    if (tensor.scalar_type() != of.query.scalar_type() || tensor.sizes() != of.query.sizes() || !tensor.is_contiguous())
      throw InternalError({"scores by channels",
                           "an input is " + describe(tensor) + ", and the query is " + describe(of.query),
                           "contiguous inputs of one shape and type", ""});
}

}  // namespace

ChannelScoresResult channel_scores(const ChannelTokens& of) {
  static const auto kOperator =
      c10::Dispatcher::singleton().findSchemaOrThrow("gantry::channel_scores_", "").typed<decltype(scores_on_cpu)>();
  check_scored(of);
  const torch::NoGradGuard no_grad;
  std::vector<std::int64_t> shape = of.query.sizes().vec();
  shape.back() = of.query.size(-2);
  ChannelScoresResult made{torch::empty(shape, of.query.options()), torch::empty(shape, of.query.options())};
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (of.query.numel() > 0) kOperator.call(made.of_query, made.of_key, of.query, of.key, of.sums);
  return made;
}

ChannelTokens channel_scores_backward(const ChannelTokens& of, const ChannelScoresResult& gradients) {
  static const auto kOperator = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("gantry::channel_scores_backward_", "")
                                    .typed<decltype(scores_backward_on_cpu)>();
  check_scored(of);
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> to;
  for (const torch::Tensor& tensor : {of.query, of.key, of.sums}) to.push_back(torch::empty_like(tensor));
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  if (of.query.numel() > 0) kOperator.call(to, gradients.of_query, gradients.of_key, of.query, of.key, of.sums);
  return {to[0], to[1], to[2]};
}

TORCH_LIBRARY_FRAGMENT(gantry, library) {
  library.def("channel_scores_(Tensor(a!) of_query, Tensor(b!) of_key, Tensor query, Tensor key, Tensor sums) -> ()");
  library.def(
      "channel_scores_backward_(Tensor(a!)[] to, Tensor of_query, Tensor of_key, Tensor query, Tensor key, "
      "Tensor sums) -> ()");
}

TORCH_LIBRARY_IMPL(gantry, CPU, library) {
  library.impl("channel_scores_", &scores_on_cpu);
  library.impl("channel_scores_backward_", &scores_backward_on_cpu);
}

TORCH_LIBRARY_IMPL(gantry, Meta, library) {
  library.impl("channel_scores_", &no_scores);
  library.impl("channel_scores_backward_", &no_scores_backward);
}

}  // namespace gantry::kernels
