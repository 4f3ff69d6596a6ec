#include "gantry/nn/attention_core.h"
#include "gantry/nn/context_attention.h"
#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Which heads, by index among those that this rank's projections made, go to which rank. A key head goes to each rank
// that has query heads of it.
struct Exchange {
  ProcessGroup* group;
  Sizes tokens;  // of each rank
  std::vector<Range> heads_of_rank;
};

// Sends rank i's piece to it: pieces in, pieces of these shapes out.
std::vector<torch::Tensor> exchange(ProcessGroup& group, const std::vector<torch::Tensor>& pieces,
                                    const std::vector<std::vector<std::int64_t>>& shapes) {
  Sizes sent, received;
  std::vector<torch::Tensor> flat;
  for (const auto& piece : pieces) {
    flat.push_back(piece.reshape({-1}));
    sent.push_back(piece.numel());
  }
  std::int64_t total = 0;
  for (const auto& shape : shapes) total += received.emplace_back(c10::multiply_integers(shape));
  const torch::Tensor in = torch::cat(flat);
  torch::Tensor out = torch::empty({total}, in.options());
  group.all_to_all(out, in, received, sent).wait();
  std::vector<torch::Tensor> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < shapes.size(); begin += received[i++])
    parts.push_back(out.narrow(0, begin, received[i]).view(shapes[i]));
  return parts;
}

// [samples, heads, this rank's tokens, size] -> [samples, this rank's heads, all tokens, size]
torch::Tensor to_heads(const torch::Tensor& given, const Exchange& by) {
  const std::int64_t mine = by.heads_of_rank[by.group->rank()].size();
  std::vector<torch::Tensor> pieces;
  std::vector<std::vector<std::int64_t>> shapes;
  for (int rank = 0; rank < by.group->size(); ++rank) {
    pieces.push_back(given.narrow(1, by.heads_of_rank[rank].begin, by.heads_of_rank[rank].size()));
    shapes.push_back({given.size(0), mine, by.tokens[rank], given.size(3)});
  }
  return torch::cat(exchange(*by.group, pieces, shapes), 2);
}

// The way back; what several ranks have of one head is summed up.
torch::Tensor to_tokens(const torch::Tensor& given, const Exchange& by, std::int64_t heads) {
  const std::int64_t mine = by.tokens[by.group->rank()];
  std::vector<std::vector<std::int64_t>> shapes;
  for (const Range& held : by.heads_of_rank) shapes.push_back({given.size(0), held.size(), mine, given.size(3)});
  const auto parts = exchange(*by.group, given.split_with_sizes(by.tokens, 2), shapes);
  torch::Tensor full = torch::zeros({given.size(0), heads, mine, given.size(3)}, given.options());
  for (std::size_t i = 0; i < parts.size(); ++i)
    full.narrow(1, by.heads_of_rank[i].begin, by.heads_of_rank[i].size()).add_(parts[i]);
  return full;
}

// What a function keeps of an exchange: numbers.
void save(AutogradContext* context, const Exchange& by, std::int64_t heads) {
  std::vector<std::int64_t> ranges;
  for (const Range& range : by.heads_of_rank) ranges.insert(ranges.end(), {range.begin, range.end});
  context->saved_data["group"] = reinterpret_cast<std::int64_t>(by.group);
  context->saved_data["tokens"] = by.tokens;
  context->saved_data["ranges"] = ranges;
  context->saved_data["heads"] = heads;
}

Exchange saved(AutogradContext* context) {
  Exchange by{reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt()),
              context->saved_data["tokens"].toIntVector(),
              {}};
  const auto ranges = context->saved_data["ranges"].toIntVector();
  for (std::size_t i = 0; i < ranges.size(); i += 2) by.heads_of_rank.push_back({ranges[i], ranges[i + 1]});
  return by;
}

struct ToHeads : torch::autograd::Function<ToHeads> {
  static Variable forward(AutogradContext* context, const Variable& given, const Exchange& by) {
    save(context, by, given.size(1));
    return to_heads(given, by);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {to_tokens(gradients[0], saved(context), context->saved_data["heads"].toInt()), {}};
  }
};

struct ToTokens : torch::autograd::Function<ToTokens> {
  static Variable forward(AutogradContext* context, const Variable& given, const Exchange& by, std::int64_t heads) {
    save(context, by, heads);
    return to_tokens(given, by, heads);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {to_heads(gradients[0], saved(context)), {}, {}};
  }
};

// The key heads that query heads [begin, end) use, by index among those held here.
Range keys_of(const Range& queries, const HeadRange& heads, const HeadRange& key_heads) {
  if (queries.size() == 0) return {0, 0};
  const std::int64_t group = heads.total / key_heads.total;
  return {(heads.first + queries.begin) / group - key_heads.first,
          (heads.first + queries.end - 1) / group - key_heads.first + 1};
}

HeadRange part_of(const HeadRange& heads, const Range& range) {
  return {heads.first + range.begin, range.size(), heads.total};
}

}  // namespace

torch::Tensor ulysses_attention(const torch::Tensor& query, const torch::Tensor& key, const torch::Tensor& value,
                                const HeadRange& heads, const HeadRange& key_heads, const AttentionOptions& options,
                                const DropoutImpl& dropout) {
  const SequencePart& part = *options.sequence;
  const int rank = part.exchanging->rank();
  Exchange of_queries{part.exchanging, part.sizes_of_exchanging(),
                      partition(heads.count, 1, part.exchanging->size(), true)};
  Exchange of_keys{part.exchanging, part.keys().sizes_of_exchanging(), {}};
  for (const Range& range : of_queries.heads_of_rank) of_keys.heads_of_rank.push_back(keys_of(range, heads, key_heads));
  const Range mine = of_queries.heads_of_rank[rank], my_keys = of_keys.heads_of_rank[rank];

  AttentionOptions full = options;  // a bias is of the heads and queries that come here
  full.sequence = part.together;
  for (torch::Tensor* of_heads : {&full.slopes, &full.sinks})
    if (of_heads->defined()) *of_heads = of_heads->narrow(0, mine.begin, mine.size());
  const torch::Tensor both = ToHeads::apply(torch::cat({key, value}, 3), of_keys);
  const auto attend = part.together ? ring_attention : attention_core;
  const torch::Tensor made = attend(ToHeads::apply(query, of_queries), both.narrow(3, 0, key.size(3)),
                                    both.narrow(3, key.size(3), value.size(3)), part_of(heads, mine),
                                    part_of(key_heads, my_keys), full, dropout);
  return ToTokens::apply(made, of_queries, heads.count);
}

}  // namespace gantry::nn
