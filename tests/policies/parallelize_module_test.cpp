// Tensor and sequence parallelism for user-defined modules, compared with the dense module in float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/nn/prepare_input.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/random_context.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

void expect_close(const torch::Tensor& a, const torch::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  if (a.numel() > 0) EXPECT_LE((a - b).abs().max().item<double>(), 1e-10);
}

torch::Tensor values(std::vector<std::int64_t> shape, double scale = 1) {
  const auto elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  return torch::sin(torch::arange(elements, torch::kFloat64) * scale + 1).view(shape);
}

template <class Model, class... Arguments>
std::shared_ptr<Model> built(Arguments... arguments) {
  const DeferredInit deferred;
  auto model = std::make_shared<Model>(arguments...);
  set_dtype(*model, torch::kFloat64);
  return model;
}

// PyTorch's sequence-parallel example.
struct Toy : torch::nn::Module {
  Toy() {
    in_proj = register_module("in_proj", nn::Linear(10, 32));
    out_proj = register_module("out_proj", nn::Linear(32, 5));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out_proj(torch::relu(in_proj(x))); }
  nn::Linear in_proj{nullptr}, out_proj{nullptr};
};

TEST(Acceptance, E2E3E6ToyModelOverThreeRanksWithRowsOfItsOwn) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["tp"];
    const int rank = group.rank();
    auto dense = built<Toy>(), split = built<Toy>();
    parallelize_module(*split, group, {{"in_proj", Column{.input = Shard{0}}}, {"out_proj", Row{.output = Shard{0}}}});
    materialize(*dense, 1);
    materialize(*split, 1);
    EXPECT_EQ(split->in_proj->weight.size(0), rank == 2 ? 10 : 11);
    EXPECT_EQ(split->out_proj->weight.size(1), rank == 2 ? 10 : 11);
    EXPECT_EQ(split->out_proj->bias.size(0), 5);
    const torch::Tensor full = values({60, 10});
    const torch::Tensor part = split->forward(full.narrow(0, 20 * rank, 20));
    expect_close(part, dense->forward(full).narrow(0, 20 * rank, 20));
    part.sum().backward();
    expect_close(split->out_proj->bias.grad(), torch::full({5}, 60.0, torch::kFloat64));
    dense->forward(full).sum().backward();
    const Range own = shard(0, 32, 3).ranges(rank).front();
    expect_close(split->in_proj->weight.grad(), dense->in_proj->weight.grad().narrow(0, own.begin, own.size()));
  });
}

TEST(Acceptance, E4AndE7AnyDimAndUnevenParts) {
  for (const int ranks : {2, 3, 4})
    for (const auto& [shape, dim] : std::vector<std::pair<std::vector<std::int64_t>, int>>{
             {{4, 12, 10}, 1}, {{13, 10}, 0}, {{2, 10}, 0}, {{3, 13, 10}, -2}})
      run_ranks(ranks, [&, shape = shape, dim = dim](World&, ProcessGroupMesh& mesh) {
        ProcessGroup& group = mesh["tp"];
        auto dense = built<Toy>(), split = built<Toy>();
        parallelize_module(*split, group,
                           {{"in_proj", Column{.input = Shard{dim}}}, {"out_proj", Row{.output = Shard{dim}}}});
        materialize(*dense, 1);
        materialize(*split, 1);
        torch::Tensor full = values(shape).requires_grad_();
        const Sizes sizes = nn::partition_sizes(full.size(dim), group);
        const auto begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
        torch::Tensor mine = full.detach().narrow(dim, begin, sizes[group.rank()]).clone().requires_grad_();
        const torch::Tensor expected = dense->forward(full), part = split->forward(mine);
        expect_close(part, expected.narrow(dim, begin, sizes[group.rank()]));
        part.pow(2).sum().backward();
        expected.pow(2).sum().backward();
        expect_close(mine.grad(), full.grad().narrow(dim, begin, sizes[group.rank()]));
      });
}

TEST(Acceptance, E8TenStepsWithAndWithoutZeroGrad) {
  for (const bool zeroes : {false, true})
    run_ranks(3, [&](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      auto dense = built<Toy>(), split = built<Toy>();
      parallelize_module(*split, group,
                         {{"in_proj", Column{.input = Shard{0}}}, {"out_proj", Row{.output = Shard{0}}}});
      materialize(*dense, 1);
      materialize(*split, 1);
      torch::optim::AdamW one(dense->parameters(), 0.25), three(split->parameters(), 0.25);
      for (int step = 0; step < 10; ++step) {
        const torch::Tensor full = values({60, 10}, 1 + step);
        if (zeroes) one.zero_grad(), three.zero_grad();
        dense->forward(full).sum().backward();
        split->forward(full.narrow(0, 20 * group.rank(), 20)).sum().backward();
        one.step();
        three.step();
      }
      expect_close(split->out_proj->bias, dense->out_proj->bias);
    });
}

// A custom block like those of Llama 3: a sharded norm, and a change of layout where attention would be.
struct Block : torch::nn::Module {
  explicit Block(std::int64_t width) {
    norm = register_module("norm", nn::RmsNorm(width));
    prepare = register_module("prepare", nn::PrepareInput());
    w1 = register_module("w1", nn::Linear(torch::nn::LinearOptions(width, 3 * width).bias(false)));
    w2 = register_module("w2", nn::Linear(torch::nn::LinearOptions(3 * width, width).bias(false)));
    w3 = register_module("w3", nn::Linear(torch::nn::LinearOptions(width, 3 * width).bias(false)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = prepare(norm(x));
    return x + w2(torch::silu(w1(y)) * w3(y));
  }
  nn::RmsNorm norm{nullptr};
  nn::PrepareInput prepare{nullptr};
  nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
};

TEST(Acceptance, B2B12FeedForwardBehindANormOnSequenceShards) {
  for (const int ranks : {2, 3})
    run_ranks(ranks, [](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh["tp"];
      auto dense = built<Block>(10), split = built<Block>(10);
      parallelize_module(*split, group,
                         {{"norm", SequenceParallel{}},
                          {"prepare", PrepareInput{.from = Shard{1}, .to = Replicate{}}},
                          {"w1", Column{}},
                          {"w3", Column{}},
                          {"w2", Row{.output = Shard{1}}}});
      materialize(*dense, 1);
      materialize(*split, 1);
      const torch::Tensor full = values({2, 7, 10});
      const Sizes sizes = nn::partition_sizes(7, group);
      const auto begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
      const torch::Tensor part = split->forward(full.narrow(1, begin, sizes[group.rank()]));
      const torch::Tensor expected = dense->forward(full);
      expect_close(part, expected.narrow(1, begin, sizes[group.rank()]));
      part.pow(2).sum().backward();
      expected.pow(2).sum().backward();
      // E9: partial sums, reduced in the backward
      expect_close(split->norm->weight.grad(), dense->norm->weight.grad());
      const Range own = shard(0, 30, group.size()).ranges(group.rank()).front();
      expect_close(split->w1->weight.grad(), dense->w1->weight.grad().narrow(0, own.begin, own.size()));
    });
}

TEST(Acceptance, E10EveryLayoutToEveryOther) {
  const std::vector<gantry::Layout> layouts = {Replicate{}, Shard{0}, Shard{1}, Partial{}};
  for (const int ranks : {1, 2, 3})
    for (const gantry::Layout& from : layouts)
      for (const gantry::Layout& to : layouts)
        run_ranks(ranks, [&](World&, ProcessGroupMesh& mesh) {
          ProcessGroup& group = mesh["tp"];
          const torch::Tensor full = values({4, 5});
          // A local tensor in a layout: full, a shard, or a partial sum.
          auto local = [&](const gantry::Layout& layout, const torch::Tensor& of) {
            if (std::holds_alternative<Replicate>(layout)) return of.clone();
            if (std::holds_alternative<Partial>(layout))
              return group.rank() == 0 ? of - (group.size() - 1.0) : torch::ones_like(of);
            const int dim = std::get<Shard>(layout).dim;
            const Sizes sizes = nn::partition_sizes(of.size(dim), group);
            const auto begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), std::int64_t{0});
            return of.narrow(dim, begin, sizes[group.rank()]).clone();
          };
          torch::Tensor input = local(from, full).requires_grad_();
          const torch::Tensor output = redistribute(input, group, from, to);
          torch::Tensor seen = output.detach().clone();
          if (std::holds_alternative<Partial>(to)) group.all_reduce(seen).wait();
          expect_close(seen, std::holds_alternative<Partial>(to) ? full : local(to, full));
          // The gradient of a partial sum is the full one, like that of a replicated tensor.
          const torch::Tensor gradient = values({4, 5}, 3);
          auto gradient_in = [&](const gantry::Layout& layout) {
            return std::holds_alternative<Partial>(layout) ? gradient : local(layout, gradient);
          };
          output.backward(gradient_in(to));
          expect_close(input.grad(), gradient_in(from));
        });
}

TEST(Acceptance, B3WrongPlansNameTheNearest) {
  struct Plain : torch::nn::Module {
    Plain() { register_module("wq", torch::nn::Linear(4, 4)); }
  };
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    auto refuse = [&](torch::nn::Module& model, const ShardPlan& plan, const std::string& said) {
      try {
        parallelize_module(model, mesh["tp"], plan);
        ADD_FAILURE() << said;
      } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr(said));
      }
    };
    refuse(*built<Toy>(), {{"in_prj", Column{}}}, "did you mean 'in_proj'?");
    refuse(*built<Toy>(), {{"in_proj", Column{}}, {"*", Row{}}}, "two rules match it");
    refuse(*built<Toy>(), {{"in_proj", Vocab{}}}, "a Linear cannot be sharded as Vocab{}; expected Column{} or Row{}");
    Plain plain;
    refuse(plain, {{"wq", Column{}}}, "use gantry::nn::Linear");
  });
}

}  // namespace
}  // namespace gantry::testing
