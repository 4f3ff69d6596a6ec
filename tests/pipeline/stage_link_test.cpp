#include "gantry/pipeline/stage_link.h"

#include <gtest/gtest.h>

#include "gantry/comm/observed_backend.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"
#include "stage_link_cases.h"

namespace gantry::testing {
namespace {

using Direction = StageMessage::Direction;

TensorDict everything(double value) {
  return {{"hidden", torch::full({2, 3}, value).requires_grad_()},
          {"mask", torch::tensor({true, false})},
          {"ids", torch::tensor({1, 2, 3})},
          {"empty", torch::empty({0, 5})},
          {"none", torch::Tensor()},
          {"half", torch::full({4}, value).to(torch::kBFloat16)}};
}

TEST(Acceptance, D11DictionariesOfAnyShapeAndDtypeTravelBothWays) {
  run_ranks({.pipeline = 2}, [](World&, ProcessGroupMesh& mesh) {
    StageLink link(mesh["pp"]);
    for (int microbatch = 0; microbatch < 3; ++microbatch) {
      const StageMessage forward{Direction::kForward, 0, microbatch, "a"},
          backward{Direction::kBackward, 1, microbatch, "a"};
      if (mesh["pp"].rank() == 0) {
        link.send(forward, 1, everything(microbatch));
        const TensorDict gradients = link.receive(backward, 1);
        ASSERT_EQ(gradients.size(), 1u);
        // The second microbatch's gradient was undefined, and arrives as undefined.
        ASSERT_EQ(gradients.at("hidden").defined(), microbatch != 1);
        if (microbatch != 1) EXPECT_TRUE(torch::equal(gradients.at("hidden"), torch::full({2, 3}, 10.0 + microbatch)));
      } else {
        const TensorDict received = link.receive(forward, 0);
        for (const auto& [name, tensor] : everything(microbatch)) {
          ASSERT_EQ(received.at(name).defined(), tensor.defined()) << name;
          if (tensor.defined()) EXPECT_TRUE(torch::equal(received.at(name), tensor.detach())) << name;
        }
        EXPECT_TRUE(received.at("hidden").requires_grad() && received.at("hidden").is_leaf());
        EXPECT_FALSE(received.at("half").requires_grad());
        link.send(backward, 0,
                  {{"hidden", microbatch == 1 ? torch::Tensor() : torch::full({2, 3}, 10.0 + microbatch)}});
      }
      link.flush();
    }
  });
}

TEST(Acceptance, D11ShapesMayChangeBetweenSteps) {
  run_ranks({.pipeline = 2}, [](World&, ProcessGroupMesh& mesh) {
    StageLink link(mesh["pp"]);
    for (const int size : {4, 9, 4, 1}) {
      const StageMessage message{Direction::kForward, 0, 0, std::to_string(size)};
      if (mesh["pp"].rank() == 0) link.send(message, 1, {{"x", torch::ones({size})}});
      if (mesh["pp"].rank() == 1) EXPECT_EQ(link.receive(message, 0).at("x").numel(), size);
      link.flush();
    }
  });
}

TEST(StageLink, MessagesMayChangeFromOneToTheNext) {
  run_ranks({.pipeline = 2}, [](World&, ProcessGroupMesh& mesh) { check_changing_messages(mesh["pp"]); });
}

TEST(StageLink, MessagesThatDoNotChangeCarryTensorsAlone) {
  run_ranks({.pipeline = 2}, [](World& world, ProcessGroupMesh&) {
    const auto meter = std::make_shared<CommunicationMeter>();
    ObservedBackend metered(world.backend(), meter);
    const auto group = metered.make_group("pp", {0, 1});
    meter->resume();
    StageLink link(*group);
    const StageMessage message{Direction::kForward, 0, 0, "a"};
    std::int64_t before = 0;
    // Returns the number of messages that this rank has sent.
    const auto round = [&](const TensorDict& tensors) {
      if (group->rank() == 0) link.send(message, 1, tensors);
      if (group->rank() == 1) link.receive(message, 0);
      link.flush();
      std::int64_t sent = 0;
      for (const auto& count : meter->counts())
        if (count.operation != "recv") sent += count.calls;
      return sent - std::exchange(before, sent);
    };
    const TensorDict two{{"x", torch::ones({2})}, {"y", torch::ones({2})}}, one{{"x", torch::ones({2})}};
    const bool sends = group->rank() == 0;
    EXPECT_EQ(round(two), sends ? 4 : 0);  // with its description
    EXPECT_EQ(round(two), sends ? 2 : 0);
    EXPECT_EQ(round(one), sends ? 5 : 0);  // two absent tensors, which announce the new description
    EXPECT_EQ(round(one), sends ? 1 : 0);
  });
}

}  // namespace
}  // namespace gantry::testing
