#include "gantry/nn/sequence_exchange.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

torch::Tensor elements_of(const torch::Tensor& input, int dim, const std::vector<Range>& ranges) {
  std::vector<torch::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(input.narrow(dim, range.begin, range.size()));
  if (parts.empty()) return input.narrow(dim, 0, 0);
  return parts.size() == 1 ? parts.front() : torch::cat(parts, dim);
}

std::int64_t size_of(const std::vector<Range>& ranges) {
  std::int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using ExchangePointer = std::shared_ptr<const SequenceExchange>;

// Sends piece i to rank i, and returns the pieces of all ranks. `input` has the shape of the pieces except for the
// sizes of both dimensions, which `shape_from` returns for the piece from a rank.
template <class ShapeFrom>
std::vector<torch::Tensor> exchanged(const SequenceExchange& by, const torch::Tensor& input,
                                     const std::vector<torch::Tensor>& pieces, const ShapeFrom& shape_from) {
  Sizes sent, received;
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& piece : pieces) {
    flat.push_back(piece.reshape({-1}));
    sent.push_back(piece.numel());
  }
  std::vector<std::vector<std::int64_t>> shapes;
  std::int64_t total = 0;
  for (int rank = 0; rank < by.group->size(); ++rank) {
    auto& shape = shapes.emplace_back(input.sizes().vec());
    std::tie(shape[by.token_dim], shape[by.head_dim]) = shape_from(rank);
    total += received.emplace_back(c10::multiply_integers(shape));
  }
  const torch::Tensor in = torch::cat(flat);
  torch::Tensor out = torch::empty({total}, in.options());
  by.group->all_to_all(out, in, received, sent).wait();
  std::vector<torch::Tensor> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < shapes.size(); begin += received[i++])
    parts.push_back(out.narrow(0, begin, received[i]).view(shapes[i]));
  return parts;
}

torch::Tensor tokens_for_heads(const torch::Tensor& input, const SequenceExchange& by) {
  std::vector<torch::Tensor> pieces;
  for (const auto& ranges : by.heads) pieces.push_back(elements_of(input, by.head_dim, ranges));
  const std::int64_t mine = size_of(by.heads[by.group->rank()]);
  const auto parts = exchanged(by, input, pieces, [&](int rank) { return std::pair(size_of(by.tokens[rank]), mine); });
  std::vector<std::pair<std::int64_t, torch::Tensor>> runs;  // with the position of their first token
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    std::int64_t done = 0;
    for (const Range& run : by.tokens[rank]) {
      runs.emplace_back(run.begin, parts[rank].narrow(by.token_dim, done, run.size()));
      done += run.size();
    }
  }
  std::ranges::sort(runs, {}, [](const auto& run) { return run.first; });
  std::vector<torch::Tensor> in_order;
  for (const auto& run : runs) in_order.push_back(run.second);
  return torch::cat(in_order, by.token_dim);
}

torch::Tensor heads_for_tokens(const torch::Tensor& input, const SequenceExchange& by) {
  std::vector<torch::Tensor> pieces;
  for (const auto& runs : by.tokens) pieces.push_back(elements_of(input, by.token_dim, runs));
  const std::int64_t mine = size_of(by.tokens[by.group->rank()]);
  const auto parts = exchanged(by, input, pieces, [&](int rank) { return std::pair(mine, size_of(by.heads[rank])); });
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape[by.token_dim] = mine;
  shape[by.head_dim] = by.size;
  torch::Tensor full = torch::zeros(shape, input.options());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    std::int64_t done = 0;
    for (const Range& range : by.heads[rank]) {
      full.narrow(by.head_dim, range.begin, range.size()).add_(parts[rank].narrow(by.head_dim, done, range.size()));
      done += range.size();
    }
  }
  return full;
}

// The exchange as a value that a node of the graph keeps.
struct KeptExchange : torch::CustomClassHolder {
  explicit KeptExchange(ExchangePointer of) : exchange(std::move(of)) {}
  ExchangePointer exchange;
};

void keep(AutogradContext* context, const ExchangePointer& by) {
  context->saved_data["exchange"] = c10::IValue::make_capsule(c10::make_intrusive<KeptExchange>(by));
}

const SequenceExchange& kept_exchange(AutogradContext* context) {
  return *static_cast<const KeptExchange&>(*context->saved_data["exchange"].toCapsule()).exchange;
}

struct ToHeads : torch::autograd::Function<ToHeads> {
  static Variable forward(AutogradContext* context, const Variable& input, const ExchangePointer& by) {
    keep(context, by);
    return tokens_for_heads(input, *by);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {heads_for_tokens(gradients[0], kept_exchange(context)), {}};
  }
};

struct ToTokens : torch::autograd::Function<ToTokens> {
  static Variable forward(AutogradContext* context, const Variable& input, const ExchangePointer& by) {
    keep(context, by);
    return heads_for_tokens(input, *by);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {tokens_for_heads(gradients[0], kept_exchange(context)), {}};
  }
};

}  // namespace

torch::Tensor to_heads(const torch::Tensor& input, const ExchangePointer& exchange) {
  return ToHeads::apply(input, exchange);
}

torch::Tensor to_tokens(const torch::Tensor& input, const ExchangePointer& exchange) {
  return ToTokens::apply(input, exchange);
}

}  // namespace gantry::nn
