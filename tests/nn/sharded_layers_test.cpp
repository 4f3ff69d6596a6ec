// Behaviour that users of tensor parallelism rely on in addition to equal numbers: attributes that survive,
// exact slices, number and time of collectives, and the memory of a backward.
#include <gtest/gtest.h>

#include <torch/nn/functional/loss.h>

#include "counting_group.h"
#include "gantry/nn/cross_entropy.h"
#include "gantry/nn/embedding.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/policies/sharder.h"
#include "gantry/profiling/profiler.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"
#include "ranks.h"
#include "sines.h"

namespace gantry::testing {
namespace {

struct Tied : torch::nn::Module {
  Tied() {
    embed = register_module("embed", nn::Embedding(11, 4));
    head = register_module("head", nn::Linear(torch::nn::LinearOptions(4, 11).bias(false)));
    head->tie_weight(embed->weight);
    const torch::NoGradGuard no_grad;
    embed->weight.copy_(torch::sin(torch::arange(44)).view({11, 4}));
  }
  torch::Tensor forward(const torch::Tensor& ids) { return head(embed(ids)); }
  nn::Embedding embed{nullptr};
  nn::Linear head{nullptr};
};

TEST(Acceptance, A10ShardsAndTiesSurviveTo) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    Tied dense, split;
    parallelize_module(split, mesh["tp"], {{"embed", Vocab{}}, {"head", Column{.gather_output = true}}});
    dense.to(torch::kFloat64);
    split.to(torch::kFloat64);
    split.to(torch::kCPU);
    EXPECT_TRUE(split.head->weight.is_same(split.embed->weight));
    EXPECT_EQ(split.head->weight_placement().dim, 0);
    EXPECT_EQ(split.head->weight.scalar_type(), torch::kFloat64);
    const torch::Tensor ids = torch::tensor({0, 10, 7, 3});
    EXPECT_TRUE(torch::allclose(split.forward(ids), dense.forward(ids), 0, 1e-12));
    split.forward(ids).pow(2).sum().backward();
    dense.forward(ids).pow(2).sum().backward();
    const Range own = split.head->weight_placement().ranges(mesh["tp"].rank()).front();
    EXPECT_TRUE(torch::allclose(split.embed->weight.grad(), dense.embed->weight.grad().narrow(0, own.begin, own.size()),
                                0, 1e-12));
  });
}

TEST(Acceptance, B1ColumnPartsConcatenateAndRowPartsSum) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["tp"];
    nn::Linear up = linear_of_sines(6, 11), dense_up = linear_of_sines(6, 11), down = linear_of_sines(11, 5),
               dense_down = linear_of_sines(11, 5);
    up->shard(Column{}, group);
    down->shard(Row{.reduce_output = false}, group);
    const torch::Tensor x = sines({2, 6});
    Sizes sizes;
    for (int rank = 0; rank < 3; ++rank) sizes.push_back(up->weight_placement().ranges(rank).front().size());
    const torch::Tensor hidden = torch::gelu(up(x)).detach();  // an elementwise operation needs no communication
    EXPECT_TRUE(torch::allclose(all_gather_along(group, hidden, 1, sizes), torch::gelu(dense_up(x)), 0, 1e-12));
    torch::Tensor sum = down(hidden).detach().clone();
    group.all_reduce(sum).wait();
    EXPECT_TRUE(torch::allclose(sum + dense_down->bias, dense_down(torch::gelu(dense_up(x))), 0, 1e-12));
  });
}

TEST(Acceptance, C6FusedProjectionsGiveEachRankItsPartOfEachSegment) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh["tp"];
    nn::Linear dense = linear_of_sines(4, 3 * 6), split = linear_of_sines(4, 3 * 6);
    split->shard(Column{.segments = 3, .unit = 2}, group);  // heads of 2 features: 2 and 1 of 3 heads
    const torch::Tensor full = dense->weight.detach();
    const int first = group.rank() == 0 ? 0 : 4, size = group.rank() == 0 ? 4 : 2;
    std::vector<torch::Tensor> own;
    for (int segment = 0; segment < 3; ++segment) own.push_back(full.narrow(0, 6 * segment + first, size));
    EXPECT_TRUE(torch::equal(split->weight, torch::cat(own)));  // [q_r; k_r; v_r], no contiguous third
    // Gathering each segment again gives the original bits.
    std::vector<torch::Tensor> segments;
    for (const auto& part : split->weight.detach().split(size)) {
      torch::Tensor out = torch::empty({6, 4}, torch::kFloat64);
      group.all_gather(out, part.contiguous(), {4, 2}).wait();
      segments.push_back(out);
    }
    EXPECT_TRUE(torch::equal(torch::cat(segments), full));
  });
}

TEST(Acceptance, C8PaddedColumnsStayOutOfTheSoftmax) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    // 7 words padded to 8 columns: the last column does not count, however large it is.
    torch::Tensor full = sines({3, 7}).requires_grad_();
    const torch::Tensor labels = torch::tensor({0, 6, 3});
    const ShardSpec vocabulary = shard(0, 8, 2);
    const torch::Tensor padded = torch::cat({full.detach(), torch::full({3, 1}, 50.0, torch::kFloat64)}, 1);
    const Range own = vocabulary.ranges(mesh["tp"].rank()).front();
    torch::Tensor part = padded.narrow(1, own.begin, own.size()).clone().requires_grad_();
    const Loss loss = nn::cross_entropy(part, labels, mesh["tp"], vocabulary, {.vocabulary = 7});
    const torch::Tensor expected = torch::nn::functional::cross_entropy(
        full, labels, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    EXPECT_NEAR(loss.sum.item<double>(), expected.item<double>(), 1e-12);
    loss.sum.backward();
    if (mesh["tp"].rank() == 1) EXPECT_EQ(part.grad().select(1, 3).abs().max().item<double>(), 0);
  });
}

TEST(Acceptance, E5SequenceParallelPairsGatherOnceAndScatterOnceEachWay) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    CountingGroup group(mesh["tp"]);
    nn::Linear up = linear_of_sines(10, 32), down = linear_of_sines(32, 5);
    up->shard(Column{.input = Shard{0}, .gradient_sum = GradientSum::kAtSync}, group);
    down->shard(Row{.output = Shard{0}, .gradient_sum = GradientSum::kAtSync}, group);
    // The size of the full sequence is known, as within a boosted
    // step. Otherwise the ranks first exchange one number each.
    const ForwardScope scope({.random = RandomContext{.sequence_length = 60}});
    torch::Tensor rows = sines({20, 10}).requires_grad_();
    const torch::Tensor out = down(torch::relu(up(rows)));
    EXPECT_EQ(std::pair(group.all_gathers, group.reduce_scatters), std::pair(1, 1));
    EXPECT_EQ(group.elements, 60 * 10 + 60 * 5);
    out.sum().backward();
    EXPECT_EQ(std::pair(group.all_gathers, group.reduce_scatters), std::pair(2, 2));
    EXPECT_EQ(group.all_reduces + group.others, 0);
  });
}

TEST(Acceptance, E9GradientsOfReplicatedBiasesOnShardsAreSummed) {
  run_ranks(3, [](World&, ProcessGroupMesh& mesh) {
    CountingGroup group(mesh["tp"]);
    nn::Linear down = linear_of_sines(32, 5);
    down->shard(Row{.output = Shard{0}}, group);
    down(sines({60, 11}).narrow(1, 0, group.rank() == 2 ? 10 : 11)).sum().backward();
    EXPECT_TRUE(torch::equal(down->bias.grad(), torch::full({5}, 60.0, torch::kFloat64)));
    EXPECT_EQ(group.all_reduces, 1);
  });
}

std::size_t place_of(const Profile& profile, const std::string& name, std::size_t from = 0) {
  for (std::size_t i = from; i < profile.operators.size(); ++i)
    if (profile.operators[i].name == name) return i;
  return profile.operators.size();
}

TEST(LinearBackward, StartsTheInputGradientsSumBeforeTheWeightGradientAndWaitsAfterIt) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    nn::Linear up = linear_of_sines(16, 32);
    up->shard(Column{}, mesh["tp"]);
    torch::Tensor x = sines({8, 16}).requires_grad_();
    const torch::Tensor sum = up(x).sum();
    Profile profile;
    Profiler profiler(
        {.active = 1}, [&](const Profile& seen) { profile = seen; }, [&] { mesh.world_group().barrier().wait(); });
    sum.backward();
    profiler.step();
    const auto started = place_of(profile, "gantry::all_reduce");
    const auto weight = place_of(profile, "aten::addmm_", started);
    const auto waited = place_of(profile, "gantry::wait", started);
    ASSERT_LT(waited, profile.operators.size());
    EXPECT_LT(place_of(profile, "aten::mm"), started);  // the input's gradient
    EXPECT_LT(started, weight);
    EXPECT_LT(weight, waited);
  });
}

TEST(LinearBackward, TakesNoTemporaryOfTheWeightsSize) {
  run_ranks(1, [](World&, ProcessGroupMesh& mesh) {
    constexpr std::int64_t kWidth = 512, kRows = 4;
    nn::Linear layer = linear_of_sines(kWidth, kWidth);
    layer->shard(Column{}, mesh["tp"]);
    layer->weight.mutable_grad() = torch::zeros_like(layer->weight);
    layer->bias.mutable_grad() = torch::zeros_like(layer->bias);
    const std::int64_t weight_bytes = kWidth * kWidth * 8;
    const MemoryMeter meter;
    for (int microbatch = 0; microbatch < 3; ++microbatch)
      layer(sines({kRows, kWidth}).requires_grad_()).sum().backward();
    EXPECT_LT(meter.peak_bytes(), weight_bytes / 4);
  });
}

}  // namespace
}  // namespace gantry::testing
