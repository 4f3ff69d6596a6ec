// Tensor-parallel layers compared with dense ones, in float64.
#include <gtest/gtest.h>

#include <torch/nn/functional/loss.h>

#include "counting_group.h"
#include "gantry/core/error.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"
#include "sines.h"

namespace gantry::testing {
namespace {

constexpr double kTolerance = 1e-10;

// A layer whose values depend on its name alone, so that every rank builds the same.
nn::Linear linear(std::int64_t in, std::int64_t out, const std::string& name) {
  auto layer = [&] {
    const DeferredInit deferred;
    nn::Linear made(in, out);
    set_dtype(*made, torch::kFloat64);
    return made;
  }();
  materialize(layer->weight, name + ".weight", 1);
  materialize(layer->bias, name + ".bias", 1);
  return layer;
}

torch::Tensor input(const std::vector<std::int64_t>& shape) { return sines(shape).requires_grad_(); }

torch::Tensor part_of(const torch::Tensor& full, const ShardSpec& placement, int rank) {
  std::vector<torch::Tensor> parts;
  for (const Range& range : placement.ranges(rank))
    parts.push_back(full.narrow(placement.dim, range.begin, range.size()));
  return torch::cat(parts, placement.dim);
}

void expect_close(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_LE((a - b).abs().max().item<double>(), kTolerance);
}

TEST(Acceptance, A6ColumnParallelLinearEqualsDense) {
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      for (const bool gather : {false, true})
        for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{6}, {3, 6}, {2, 3, 6}, {2, 1, 3, 6}}) {
          nn::Linear dense = linear(6, 10, "l"), split = linear(6, 10, "l");
          split->shard(Column{.gather_output = gather}, group);
          const ShardSpec& placement = split->weight_placement();
          torch::Tensor x = input(shape), y = input(shape);
          const torch::Tensor full = dense(x), part = split(y);
          ShardSpec last = placement;
          last.dim = static_cast<int>(full.dim()) - 1;
          expect_close(part, gather ? full : part_of(full, last, group.rank()));
          full.pow(2).sum().backward();
          part.pow(2).sum().backward();
          expect_close(y.grad(), x.grad());
          expect_close(split->weight.grad(), part_of(dense->weight.grad(), placement, group.rank()));
          expect_close(split->bias.grad(), part_of(dense->bias.grad(), placement, group.rank()));
        }
    });
}

TEST(Acceptance, A7RowParallelLinearAddsItsBiasOnce) {
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      for (const bool parallel_input : {false, true}) {
        nn::Linear dense = linear(10, 6, "l"), split = linear(10, 6, "l");
        split->shard(Row{.input_is_parallel = parallel_input}, group);
        const ShardSpec& placement = split->weight_placement();
        torch::Tensor x = input({2, 3, 10});
        ShardSpec last = placement;
        last.dim = 2;
        torch::Tensor y =
            (parallel_input ? part_of(x.detach(), last, group.rank()) : x.detach().clone()).requires_grad_();
        const torch::Tensor full = dense(x), part = split(y);
        expect_close(part, full);
        full.pow(2).sum().backward();
        part.pow(2).sum().backward();
        expect_close(y.grad(), parallel_input ? part_of(x.grad(), last, group.rank()) : x.grad());
        expect_close(split->weight.grad(), part_of(dense->weight.grad(), placement, group.rank()));
        expect_close(split->bias.grad(), dense->bias.grad());
      }
      nn::Linear probe = linear(8, 3, "l");
      {
        const torch::NoGradGuard no_grad;
        probe->weight.zero_();
        probe->bias.fill_(1);
      }
      probe->shard(Row{.input_is_parallel = false}, group);
      EXPECT_TRUE(torch::equal(probe(input({2, 8})), torch::ones({2, 3}, torch::kFloat64)));
      nn::Linear partial = linear(8, 3, "l"), bare = linear(8, 3, "l"), dense = linear(8, 3, "l");
      partial->shard(Row{.input_is_parallel = false, .reduce_output = false}, group);
      bare->shard(Row{.input_is_parallel = false, .skip_bias_add = true}, group);
      torch::Tensor sum = partial(input({2, 8})).detach().clone();
      group.all_reduce(sum).wait();
      expect_close(sum + dense->bias, dense(input({2, 8})));
      expect_close(bare(input({2, 8})) + bare->bias, dense(input({2, 8})));
    });
}

TEST(Acceptance, A8ColumnThenRowIsOneAllReduceEachWay) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    CountingGroup group(mesh["tp"]);
    nn::Linear up = linear(6, 11, "up"), down = linear(11, 6, "down");
    up->shard(Column{}, group);
    down->shard(Row{}, group);
    torch::Tensor x = input({4, 6});
    const torch::Tensor y = down(torch::gelu(up(x)));
    EXPECT_EQ(group.all_reduces, 1);
    y.sum().backward();
    EXPECT_EQ(group.all_reduces, 2);
    EXPECT_EQ(group.all_gathers + group.reduce_scatters + group.others, 0);
  });
}

TEST(Embedding, VocabularyParallelEqualsDense) {
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) {
      auto build = [] {
        nn::Embedding made(11, 4);
        const torch::NoGradGuard no_grad;
        made->weight.copy_(torch::sin(torch::arange(44)).view({11, 4}));
        return made;
      };
      nn::Embedding dense = build(), split = build();
      split->shard(Vocab{}, mesh["tp"]);
      const torch::Tensor ids = torch::tensor({{0, 10, 3}, {3, 3, 7}});
      const torch::Tensor full = dense(ids), part = split(ids);
      EXPECT_TRUE(torch::equal(full, part));
      full.pow(2).sum().backward();
      part.pow(2).sum().backward();
      const Range own = shard(0, 11, mesh["tp"].size()).ranges(mesh["tp"].rank()).front();
      EXPECT_TRUE(torch::allclose(split->weight.grad(), dense->weight.grad().narrow(0, own.begin, own.size())));
    });
}

TEST(Embedding, ATokenOutsideTheVocabularyIsNamed) {
  nn::Embedding embedding(256, 2);
  try {
    embedding(torch::tensor({{1, 2}, {3, 307}}));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("tokens: token 307 at [1, 1] is outside the vocabulary of 256"),
              std::string::npos)
        << error.what();
  }
}

TEST(CrossEntropy, EqualsLibTorchForEveryShard) {
  for (const double smoothing : {0.0, 0.1})
    for (const int ranks : {1, 2, 3, 4})
      run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
        const torch::Tensor labels = torch::tensor({3, -100, 0, 6, -100, 2});
        torch::Tensor full = input({6, 7});
        auto options =
            torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(smoothing);
        const torch::Tensor expected = torch::nn::functional::cross_entropy(full, labels, options);
        expected.backward();
        const ShardSpec vocabulary = shard(0, 7, mesh["tp"].size());
        const Range own = vocabulary.ranges(mesh["tp"].rank()).front();
        torch::Tensor part = full.detach().narrow(1, own.begin, own.size()).clone().requires_grad_();
        const Loss loss = nn::cross_entropy(part, labels, mesh["tp"], vocabulary, {.label_smoothing = smoothing});
        loss.sum.backward();
        EXPECT_EQ(loss.count.item<int>(), 4);
        expect_close(loss.sum, expected);
        expect_close(part.grad(), full.grad().narrow(1, own.begin, own.size()));
      });
}

TEST(CrossEntropy, TheGuidesFigures) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    const ShardSpec vocabulary = shard(0, 4, 2);
    const int first = mesh["tp"].rank() * 2;
    for (const auto& [smoothing, loss, gradient] :
         {std::tuple(0.0, 0.4401897, std::vector<double>{.0321, .0871, .2369, -.3561}),
          std::tuple(0.1, 0.5901897, std::vector<double>{.0071, .0621, .2119, -.2811})}) {
      torch::Tensor logits = torch::tensor({{first + 0.0, first + 1.0}}, torch::kFloat64).requires_grad_();
      const Loss result =
          nn::cross_entropy(logits, torch::tensor({3}), mesh["tp"], vocabulary, {.label_smoothing = smoothing});
      result.sum.backward();
      EXPECT_NEAR(result.sum.item<double>(), loss, 1e-7);
      for (int i = 0; i < 2; ++i) EXPECT_NEAR(logits.grad()[0][i].item<double>(), gradient[first + i], 5e-5);
    }
  });
}

TEST(CrossEntropy, AllIgnoredIsZeroAndWrongLabelsAreNamed) {
  run_ranks(1, [](World&, ProcessGroupMesh& mesh) {
    torch::Tensor logits = input({2, 5});
    const Loss none = nn::cross_entropy(logits, torch::tensor({-100, -100}), mesh["tp"], replicate());
    none.sum.backward();
    EXPECT_EQ(none.sum.item<double>(), 0);
    EXPECT_EQ(none.count.item<int>(), 0);
    EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
    EXPECT_THROW(nn::cross_entropy(logits, torch::tensor({1, 5}), mesh["tp"], replicate()), InputError);
  });
}

}  // namespace
}  // namespace gantry::testing
