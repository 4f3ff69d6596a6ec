// The exchange of tokens for heads: the order of tokens, blocks that several heads read, and gradients.
#include "gantry/nn/head_exchange.h"

#include <gtest/gtest.h>

#include "gantry/nn/sequence_part.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kExchangedTokens = 11, kExchangedHeads = 5;

// [2, tokens, width], of which each element is different.
torch::Tensor numbered(std::int64_t width) {
  return torch::arange(2 * kExchangedTokens * width, torch::kFloat64).view({2, kExchangedTokens, width});
}

nn::TokenContext context_on(ProcessGroup& group, SequenceLayout layout) {
  auto part = std::make_shared<nn::SequencePart>();
  part->shard = {kExchangedTokens, group.size(), layout};
  part->group = &group;
  return {.sequence = std::move(part)};
}

torch::Tensor here(const torch::Tensor& all, const nn::TokenContext& tokens) {
  const nn::SequencePart& part = *tokens.sequence;
  return all.index_select(1, torch::tensor(part.shard.places(part.group->rank()))).clone().requires_grad_();
}

// Heads 2 to 6 of 8, of which four consecutive ones read a group: the ranks have 2, 2 and 1 of them, and the group of
// heads 4 to 7 is read by two ranks.
TEST(HeadExchange, HeadsGetTokensInOrderAndTheGroupsThatTheyRead) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["tp"];
    const std::int64_t first[] = {0, 2, 4}, count[] = {2, 2, 1}, group_of[] = {0, 1, 1};
    const std::int64_t begin = first[group.rank()], heads = count[group.rank()], read = group_of[group.rank()];
    for (const auto layout : {SequenceLayout::kContiguous, SequenceLayout::kZigzag}) {
      const nn::TokenContext tokens = context_on(group, layout);
      const nn::HeadExchange exchange(tokens, {2, kExchangedHeads, 8});
      EXPECT_EQ(exchange.heads().first, 2 + begin);
      EXPECT_EQ(exchange.heads().count, heads);
      const torch::Tensor features = numbered(3 * kExchangedHeads), groups = numbered(2 * 7);
      const torch::Tensor mine = here(features, tokens), my_groups = here(groups, tokens);
      const auto got = exchange.to_heads({mine, my_groups}, {{3}, {7, 4}});
      EXPECT_TRUE(torch::equal(got[0], features.narrow(2, 3 * begin, 3 * heads)));
      EXPECT_TRUE(torch::equal(got[1], groups.narrow(2, 7 * read, 7)));
      const torch::Tensor back = exchange.to_tokens(got[0], 3);
      EXPECT_TRUE(torch::equal(back, mine));
      const torch::Tensor parameter = torch::arange(3 * kExchangedHeads + 2 * 7);
      EXPECT_TRUE(
          torch::equal(exchange.own(parameter, {{3}, {7, 4}}),
                       torch::cat({parameter.narrow(0, 3 * begin, 3 * heads), parameter.narrow(0, 15 + 7 * read, 7)})));
      // Gradients: 2 for each element that comes back, and 1 from each rank that reads a group.
      (2 * back.sum() + got[1].sum()).backward();
      EXPECT_TRUE(torch::equal(mine.grad(), torch::full_like(mine, 2)));
      EXPECT_TRUE(torch::equal(my_groups.grad().narrow(2, 0, 7), torch::ones({2, mine.size(1), 7}, torch::kFloat64)));
      EXPECT_TRUE(
          torch::equal(my_groups.grad().narrow(2, 7, 7), torch::full({2, mine.size(1), 7}, 2, torch::kFloat64)));
    }
  });
}

}  // namespace
}  // namespace gantry::testing
