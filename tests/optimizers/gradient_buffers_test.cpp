// Gradient buckets in closed form: rank r's gradient of parameter i is (r + 1) (i + 1).
#include "gantry/optimizers/gradient_buffers.h"

#include <gtest/gtest.h>

#include "gantry/profiling/profiler.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kSizes[] = {3, 40, 33, 1, 64};

std::vector<HeldTensor> parameters() {
  std::vector<HeldTensor> held;
  for (std::size_t i = 0; i < std::size(kSizes); ++i)
    held.push_back(
        {{.name = "p" + std::to_string(i), .global_shape = {kSizes[i]}, .shards = {}, .stages = {0}, .aliases = {}},
         torch::full({kSizes[i]}, static_cast<double>(i), torch::kFloat64).requires_grad_()});
  return held;
}

void add_gradients(GradientBuffers& gradients, int rank) {
  for (std::size_t i = 0; i < gradients.parameters().size(); ++i)
    gradients.parameters()[i].tensor.mutable_grad().add_((rank + 1.0) * (static_cast<double>(i) + 1));
}

bool parameters_have_gradient(const GradientBuffers& gradients, std::size_t i) {
  return gradients.parameters()[i].tensor.grad().defined();
}

double sum_over(int ranks) { return ranks * (ranks + 1) / 2.0; }

std::size_t collectives_in(const Profile& profile) {
  std::size_t count = 0;
  for (const auto& one : profile.operators)
    count += one.name == "gantry::all_reduce" || one.name == "gantry::reduce_scatter";
  return count;
}

TEST(GradientBuffers, SumsOverReplicasWhateverTheBuckets) {
  for (const int ranks : {1, 2, 3})
    for (const std::int64_t bytes : {1, 400, 600, 1 << 20})
      for (const int zero : {0, 1})
        run_ranks(Layout{.data = ranks}, [&](World&, ProcessGroupMesh& mesh) {
          GradientBuffers gradients(parameters(), {}, mesh, {.bucket_bytes = bytes, .zero = zero});
          const int rank = mesh.coordinate("dp");
          for (int step = 0; step < 2; ++step) {
            gradients.begin_accumulation();
            add_gradients(gradients, rank);
            add_gradients(gradients, rank);
            gradients.sync(0.5);
            gradients.complete();
            for (std::size_t i = 0; i < std::size(kSizes); ++i)
              EXPECT_TRUE(torch::equal(gradients.gradient(i),
                                       torch::full({kSizes[i]}, sum_over(ranks) * (i + 1.0), torch::kFloat64)));
            gradients.zero();
          }
        });
}

TEST(GradientBuffers, BucketsSetOutInOneOrderWhenTheyAreReady) {
  run_ranks(Layout{.data = 2}, [](World&, ProcessGroupMesh& mesh) {
    GradientBuffers gradients(parameters(), {}, mesh, {.bucket_bytes = 1});  // one bucket per parameter
    add_gradients(gradients, mesh.coordinate("dp"));
    std::vector<std::size_t> started;
    Profiler profiler(
        {.active = 1, .repeat = 0}, [&](const Profile& profile) { started.push_back(collectives_in(profile)); },
        [&] { mesh.world_group().barrier().wait(); });
    gradients.parameter_ready(4);  // not watched: starts nothing
    profiler.step();
    gradients.watch(true);
    gradients.parameter_ready(2);  // waits for p4 and p3, which come first
    profiler.step();
    gradients.parameter_ready(4);
    profiler.step();
    gradients.parameter_ready(3);  // also starts p2
    gradients.parameter_ready(3);
    profiler.step();
    gradients.sync(1);
    profiler.step();
    EXPECT_EQ(started, (std::vector<std::size_t>{0, 0, 1, 2, 2}));
    EXPECT_EQ(gradients.gradient(0)[0].item<double>(), 3);
  });
}

TEST(GradientBuffers, SumsThatWereReducedAreNotReducedAgain) {
  for (const int zero : {0, 1})
    run_ranks(Layout{.data = 2}, [&](World&, ProcessGroupMesh& mesh) {
      GradientBuffers gradients(parameters(), {}, mesh, {.bucket_bytes = 300, .zero = zero});
      add_gradients(gradients, mesh.coordinate("dp"));
      gradients.sync(1);
      gradients.begin_accumulation();  // without zero_grad
      add_gradients(gradients, mesh.coordinate("dp"));
      gradients.sync(1);
      gradients.complete();
      EXPECT_EQ(gradients.gradient(1)[7].item<double>(), 2 * 3 * 2);
    });
}

// Adds the gradients of a backward like a layer whose parameter may not have a gradient yet.
void leave_gradients(GradientBuffers& gradients, std::size_t i, int rank) {
  const auto& tensor = gradients.parameters()[i].tensor;
  auto& gradient = tensor.mutable_grad();
  if (!gradient.defined()) gradient = torch::zeros_like(tensor).detach();
  gradient.add_((rank + 1.0) * (static_cast<double>(i) + 1));
}

TEST(GradientBuffers, ScatteredGradientsSumWhateverTheOrderAndTheBuckets) {
  for (const int ranks : {2, 3})
    for (const std::int64_t bytes : {1, 600, 1 << 20})
      for (const bool held : {false, true})
        run_ranks(Layout{.data = ranks}, [&](World&, ProcessGroupMesh& mesh) {
          GradientBuffers gradients(parameters(), {}, mesh, {.bucket_bytes = bytes, .zero = 2});
          ASSERT_TRUE(gradients.scatters());
          const int rank = mesh.coordinate("dp");
          gradients.hold(held);
          for (int step = 0; step < 2; ++step) {  // the second step without zero_grad
            gradients.begin_accumulation();
            const int backwards = held ? 1 + rank : 2;
            for (int backward = 0; backward < backwards; ++backward) {
              for (const std::size_t i : {4, 2, 3, 0, 1, 3}) {  // p3 twice
                leave_gradients(gradients, i, rank);
                gradients.parameter_ready(i);
                EXPECT_FALSE(parameters_have_gradient(gradients, i));
              }
              if (!held) gradients.scatter_stage(0);
            }
            if (held) gradients.scatter_stage(0);
            gradients.sync(0.5, 1, gradients.has_unsent());
          }
          gradients.complete();
          double sum = 0;
          for (int each = 0; each < ranks; ++each) sum += (held ? 1 + each : 2) * (each + 1.0) * 0.5 * 2;
          for (std::size_t i = 0; i < std::size(kSizes); ++i)
            EXPECT_TRUE(torch::equal(gradients.gradient(i),
                                     torch::full({kSizes[i]}, sum * (i + 1.0) * (i == 3 ? 2 : 1), torch::kFloat64)))
                << gradients.gradient(i)[0] << " of " << i;
          gradients.zero();
          EXPECT_FALSE(gradients.gradient(0).defined());
        });
}

TEST(GradientBuffers, ZeroDropsWhatIsUnderWay) {
  run_ranks(Layout{.data = 2}, [](World&, ProcessGroupMesh& mesh) {
    GradientBuffers gradients(parameters(), {}, mesh, {.bucket_bytes = 600, .zero = 2});
    for (int backward = 0; backward < 2; ++backward) {
      gradients.zero();
      for (std::size_t i = 0; i < std::size(kSizes); ++i) leave_gradients(gradients, i, mesh.coordinate("dp"));
      gradients.scatter_stage(0);
    }
    gradients.sync(1);
    gradients.complete();
    for (std::size_t i = 0; i < std::size(kSizes); ++i)
      EXPECT_TRUE(torch::equal(gradients.gradient(i), torch::full({kSizes[i]}, 3 * (i + 1.0), torch::kFloat64)));
  });
}

TEST(GradientBuffers, OwnedRangesTileEveryParameter) {
  run_ranks(Layout{.data = 3}, [](World&, ProcessGroupMesh& mesh) {
    GradientBuffers gradients(parameters(), {}, mesh, {.bucket_bytes = 500, .zero = 1});
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      const Placement& placement = gradients.stepped_placement(i);
      ASSERT_EQ(placement.shards.size(), 1u);
      std::int64_t next = 0;
      for (int replica = 0; replica < 3; ++replica) {
        const Range own = placement.shards.front().ranges(replica).front();
        if (own.size() == 0) continue;
        EXPECT_EQ(own.begin, next);
        next = own.end;
      }
      EXPECT_EQ(next, kSizes[i]);
      // After the owned values are updated and gathered, every replica has the same values.
      gradients.owned_values(i).fill_(100.0 + static_cast<double>(i));
    }
    gradients.gather_values();
    gradients.wait_values();
    for (std::size_t i = 0; i < std::size(kSizes); ++i)
      EXPECT_TRUE(torch::equal(gradients.parameters()[i].tensor.detach(),
                               torch::full({kSizes[i]}, 100.0 + static_cast<double>(i), torch::kFloat64)));
  });
}

}  // namespace
}  // namespace gantry::testing
