// The operations of a rank as an observer receives them, their order, and the counts of the meter.
#include "gantry/comm/observed_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "gantry/core/error.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;

// Records its calls, except waits(), which depends on the order in which ranks arrive.
class Witness final : public OperationObserver {
 public:
  int begin_group(const std::string& label, const std::vector<int>& ranks, std::uint64_t&) override {
    heard.push_back("begin " + label);
    return ranks.size() == 1 ? -1 : 0;
  }
  void made(int, std::uint64_t) override { heard.push_back("made"); }
  std::uint64_t post(const ObservedCall& call) override {
    heard.push_back(std::string("post ") + name_of(call.kind) + " " + call.reduction + call.dtype + " " +
                    std::to_string(call.bytes));
    return call.kind == OperationKind::kBarrier ? kUnobserved : 7;
  }
  void enter_wait(std::uint64_t) override { heard.push_back("enter"); }
  void leave(std::uint64_t) override { heard.push_back("leave"); }
  void waits(std::uint64_t) override {}
  void finish(std::uint64_t operation, OperationState state) override {
    EXPECT_EQ(operation, 7u);
    heard.push_back(name_of(state));
  }
  std::vector<std::string> take() { return std::exchange(heard, {}); }

  std::vector<std::string> heard;
};

TEST(ObservedBackend, TellsOfGroupsCallsWaitsAndEnds) {
  run_ranks(2, [](World& world, ProcessGroupMesh&) {
    const auto witness = std::make_shared<Witness>();
    ObservedBackend observed(world.backend(), witness);
    EXPECT_STREQ(observed.name(), world.backend().name());
    const auto alone = observed.make_group("dp", {world.rank()});
    alone->barrier().wait();
    EXPECT_THAT(witness->take(), ElementsAre("begin dp")) << "a group that is not observed";
    const auto group = observed.make_group("tp", {0, 1});
    EXPECT_THAT(witness->take(), ElementsAre("begin tp", "made"));

    torch::Tensor sum = torch::ones({4});
    Work work = group->all_reduce(sum);
    EXPECT_THAT(witness->take(), ElementsAre("post all_reduce sumfloat32 16", "leave"));
    work.wait();
    EXPECT_THAT(witness->take(), ElementsAre("enter", "done", "leave"));
    work.wait();
    EXPECT_THAT(witness->take(), ElementsAre("enter", "leave")) << "it ends once";
    EXPECT_EQ(sum[0].item<float>(), 2);

    EXPECT_THROW(group->all_gather(sum, sum, {1, 1}), UsageError);
    EXPECT_THAT(witness->take(), ElementsAre("post all_gather float32 16", "leave", "refused"));
    group->barrier().wait();
    EXPECT_THAT(witness->take(), ElementsAre("post barrier  0")) << "of which nothing more was asked";

    if (world.rank() == 0) {
      group->send(torch::ones({2}), 1, {});
      EXPECT_THAT(witness->take(), ElementsAre("post send float32 8", "done", "leave"));
    } else {
      EXPECT_EQ(group->recv({{2}}, 0, {}).result().numel(), 2);
      EXPECT_THAT(witness->take(), ElementsAre("post recv float32 8", "leave", "enter", "done", "leave"));
    }
  });
}

TEST(CommunicationMeter, CountsByAxisWhatThisRankHandsIn) {
  run_ranks(2, [](World& world, ProcessGroupMesh&) {
    const auto meter = std::make_shared<CommunicationMeter>();
    ObservedBackend metered(world.backend(), meter);
    const auto group = metered.make_group("tp", {0, 1}), alone = metered.make_group("dp", {world.rank()});
    torch::Tensor full = torch::zeros({2, 3}), part = torch::ones({1, 3});
    group->all_reduce(full).wait();
    EXPECT_TRUE(meter->counts().empty()) << "before it starts to count";
    meter->resume();
    for (int i = 0; i < 3; ++i) group->all_gather(full, part, {1, 1}).wait();
    group->broadcast(full, 0).wait();
    alone->all_reduce(part).wait();
    meter->pause();
    group->barrier().wait();
    const auto counts = meter->counts();
    ASSERT_EQ(counts.size(), 2u);
    EXPECT_EQ(counts[0].axis, "tp");
    EXPECT_EQ(counts[0].operation, "all_gather");
    EXPECT_EQ(counts[0].calls, 3);
    EXPECT_EQ(counts[0].bytes, 36) << "this rank's part, not the whole";
    EXPECT_GT(counts[0].seconds, 0);
    EXPECT_EQ(counts[1].operation, "broadcast");
    EXPECT_EQ(counts[1].bytes, 24);
  });
}

}  // namespace
}  // namespace gantry::testing
