// ranks: 2, also over tcp
// Gradient buckets over MPI make progress during a backward, although only the computing thread moves them:
// at every later post, and at every call of Work::done().
#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <thread>

#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

constexpr int kLayers = 12;
constexpr auto kLongLayer = std::chrono::milliseconds(10);  // as in a larger model

struct Bucket {
  torch::Tensor sum;
  Work work;
  bool is_summed(int ranks) const { return (sum == ranks * (ranks + 1) / 2).all().item<bool>(); }
};

// Runs the backward of a stack of layers, whose hooks post one bucket each. Returns the number of buckets
// that are reduced when the last one is posted, before any wait or done().
int buckets_there_at_the_last_hook(ProcessGroup& group, std::int64_t elements) {
  std::vector<Bucket> buckets;
  int there = 0;
  torch::Tensor hidden = torch::ones({64, 64});
  std::vector<torch::Tensor> weights;
  for (int layer = 0; layer < kLayers; ++layer) {
    weights.push_back(torch::eye(64).requires_grad_());
    weights.back().register_hook([&](const torch::Tensor& gradient) {
      buckets.push_back({torch::full({elements}, 1.0F + static_cast<float>(group.rank())), {}});
      buckets.back().work = group.all_reduce(buckets.back().sum);
      if (static_cast<int>(buckets.size()) == kLayers)
        there = static_cast<int>(std::count_if(buckets.begin(), buckets.end(),
                                               [&](const Bucket& bucket) { return bucket.is_summed(group.size()); }));
      std::this_thread::sleep_for(kLongLayer);
      return gradient;
    });
    hidden = torch::relu(hidden.matmul(weights.back()));
  }
  group.barrier().wait();
  hidden.sum().backward();
  for (Bucket& bucket : buckets) {
    bucket.work.wait();
    EXPECT_TRUE(bucket.is_summed(group.size()));
  }
  return there;
}

TEST(Overlap, BucketsPostedByHooksMoveAtLaterPosts) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh.world_group();
    // Sizes that each rank reduces itself, that take one round of slices, and that take several rounds.
    for (const std::int64_t elements : {5'000, 30'000, 200'000}) {
      double least = 0;  // minimum over the ranks; repeated, as the machine may be busy
      for (int tries = 0; tries < 5 && least == 0; ++tries)
        least = all_reduce_number(group, buckets_there_at_the_last_hook(group, elements), ReduceOp::kMin);
      EXPECT_GT(least, 0) << elements;
      if (group.rank() == 0)
        std::printf("%d buckets of %lld bytes: %.0f were summed before the last one's hook ended\n", kLayers,
                    static_cast<long long>(4 * elements), least);
    }
  });
}

TEST(Overlap, ALargeMessageAndALargeSumMoveWhenTheirWorksAreAsked) {
  run_ranks(2, [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh.world_group();
    const int peer = 1 - group.rank();
    torch::Tensor sum = torch::ones({4 << 20}), sent = torch::full({4 << 20}, 7.0F), square = torch::eye(64);
    Work works[] = {group.all_reduce(sum), group.recv({{4 << 20}}, peer, {}), group.send(sent, peer, {})};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto all_done = [&] { return std::all_of(works, works + 3, [](Work& work) { return work.done(); }); };
    while (!all_done() && std::chrono::steady_clock::now() < end) square = square.matmul(square);
    EXPECT_TRUE(all_done());
    EXPECT_TRUE((sum == 2).all().item<bool>());
    EXPECT_TRUE((works[1].result() == 7).all().item<bool>());
    EXPECT_TRUE(torch::equal(square, torch::eye(64)));
  });
}

}  // namespace
}  // namespace gantry::testing
