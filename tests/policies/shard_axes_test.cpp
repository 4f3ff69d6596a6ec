// The axes that a module receives for its sharding: tp and
// an invented axis. Ranks are counted over both together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/launch/backends.h"
#include "gantry/nn/linear.h"
#include "gantry/nn/norms.h"
#include "gantry/policies/sharder.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFurther = "xp";

// One factor for each feature. The module states its sharding axes, or `forgets` them.
struct FactorsImpl : torch::nn::Module, Shardable {
  FactorsImpl(std::int64_t features, bool forgets) : forgets(forgets) {
    factors = register_parameter("factors", torch::ones({features}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * factors; }
  Placements shard(const ShardStyle&, const ShardAxes& axes) override {
    const ShardSpec shard = gantry::shard(0, factors.size(0), axes.ranks());
    shard_tensor(factors, shard, axes.rank());
    return {{"factors", forgets ? shard : axes.over(shard)}};
  }
  torch::Tensor factors;
  bool forgets;
};
TORCH_MODULE(Factors);

struct AxesModel : torch::nn::Module {
  explicit AxesModel(bool forgets = false) {
    norm = register_module("norm", nn::RmsNorm(6));
    up = register_module("up", nn::Linear(6, 14));
    factors = register_module("factors", Factors(14, forgets));
    down = register_module("down", nn::Linear(14, 6));
  }
  torch::Tensor forward(const torch::Tensor& x) { return down(torch::tanh(factors(up(norm(x))))); }
  nn::RmsNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
  Factors factors{nullptr};
};

std::shared_ptr<AxesModel> axes_model(bool forgets = false) {
  const DeferredInit deferred;
  auto model = std::make_shared<AxesModel>(forgets);
  set_dtype(*model, torch::kFloat64);
  return model;
}

const ShardPlan kAxesPlan = {{"up", Column{}}, {"factors", Column{}}, {"down", Row{}}};

void on_further_axis(const std::function<void(ProcessGroupMesh&)>& body) {
  Config config;
  config.comm.timeout_seconds = 30;
  config.comm.threads_per_rank = 1;
  const Mesh mesh({{axis::kPipeline, 1}, {axis::kData, 2}, {kFurther, 2}, {axis::kTensor, 2}});
  const auto failure = run_local(config, mesh, [&](World& world) {
    ProcessGroupMesh groups(world);
    body(groups);
    groups.world_group().barrier().wait();
  });
  ASSERT_FALSE(failure) << failure->line;
}

TEST(ShardAxes, ModulesOverAMadeUpAxisAndTpEqualTheFullOne) {
  on_further_axis([](ProcessGroupMesh& mesh) {
    const std::vector<Axis> over = {{kFurther, 2}, {axis::kTensor, 2}};
    auto full = axes_model(), model = axes_model();
    // The axes may be named in any order.
    const auto placements = parallelize_module(*model, {mesh, {axis::kTensor, kFurther}}, kAxesPlan);
    materialize(*full, 1);
    materialize(*model, 1);
    const torch::Tensor x = torch::sin(torch::arange(30, torch::kFloat64)).view({5, 6}).requires_grad_();
    const torch::Tensor other = x.detach().clone().requires_grad_();
    const torch::Tensor y = model->forward(x), expected = full->forward(other);
    EXPECT_LE((y - expected).abs().max().item<double>(), 1e-10);
    y.square().sum().backward();
    expected.square().sum().backward();
    EXPECT_LE((x.grad() - other.grad()).abs().max().item<double>(), 1e-10);
    const auto mine = model->named_parameters(), all = full->named_parameters();
    ASSERT_EQ(placements.size(), all.size());
    int shard = 0;
    for (const Placement& placement : placements) {
      for (const ShardSpec& each : placement.shards) EXPECT_EQ(each.axes, over) << placement.name;
      torch::Tensor part = all[placement.name].grad();
      for (const ShardSpec& each : placement.shards) {
        const Range held = each.ranges(each.rank_of(mesh.coordinates())).front();
        part = part.narrow(each.dim, held.begin, held.size());
        ++shard;
      }
      ASSERT_EQ(mine[placement.name].sizes(), part.sizes()) << placement.name;
      EXPECT_LE((mine[placement.name].grad() - part).abs().max().item<double>(), 1e-10) << placement.name;
    }
    EXPECT_EQ(shard, 4);  // up's weight and bias, the factors, down's weight
  });
}

TEST(ShardAxes, AreOfAMesh) {
  on_further_axis([](ProcessGroupMesh& mesh) {
    const ShardAxes both{mesh, {axis::kTensor, kFurther}};
    EXPECT_EQ(both.ranks(), 4);
    EXPECT_EQ(both.rank(), 2 * mesh.coordinate(kFurther) + mesh.coordinate(axis::kTensor));
    const ShardAxes tensor = mesh[axis::kTensor];
    EXPECT_EQ(tensor.axes(), (std::vector<Axis>{{axis::kTensor, 2}}));
    EXPECT_EQ(&tensor.group(), &mesh[axis::kTensor]);
    EXPECT_THROW((ShardAxes{mesh, {"yp"}}), ConfigError);
  });
}

TEST(ShardAxes, AShardWithoutAxesIsRejected) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    try {
      parallelize_module(*axes_model(/*forgets=*/true), mesh[axis::kTensor], kAxesPlan);
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("factors.factors: it is sharded over the axes []; expected the axes [tp] "
                                          "that were passed to shard(); return axes.over(cut) from shard()"));
    }
  });
}

}  // namespace
}  // namespace gantry::testing
