// The conformance suite for the NCCL backend, with the NCCL of support/fake_nccl and the devices of
// support/pretend_device.
#include "conformance.h"
#include "gantry/tensors/libtorch.h"
#include "nccl_ranks.h"
#include "stage_link_cases.h"

namespace gantry::testing {
namespace {

TEST(NcclBackend, ConformsAtEverySize) {
  for (const int size : {1, 2, 3, 4})
    EXPECT_EQ(outcome_on_fake(size, 30,
                              [](World& world, ProcessGroup& group) {
                                conformance_device() = here().device();
                                EXPECT_STREQ(world.backend().name(), "nccl");
                                check_conformance(group, /*sends_until_received=*/true);
                              })
                  .second,
              "");
  EXPECT_EQ(fake_counts().misuses, 0);
}

TEST(NcclBackend, ConformsWithSlowOperations) {
  // Operations on streams are late, but no rank reads a result before it exists.
  set_fake_faults(
      [](const FakeCall& call) { return call.number % 5 == call.rank ? FakeFault::kDelay : FakeFault::kNone; });
  EXPECT_EQ(outcome_on_fake(3, 30,
                            [](World&, ProcessGroup& group) {
                              conformance_device() = here().device();
                              for (const auto type : {torch::kFloat32, torch::kBFloat16}) check_type(group, type);
                              check_outstanding(group);
                              check_many_outstanding(group);
                              check_dropped(group);
                              check_sent_buffers(group, /*until_received=*/true);
                              check_handed_over(group);
                            })
                .second,
            "");
  set_fake_faults(nullptr);
}

TEST(NcclBackend, MessagesWithoutNeighboursCommunicatorsGoThroughTheHost) {
  EXPECT_EQ(outcome_on_fake(
                4, 30,
                [](World&, ProcessGroup& group) {
                  conformance_device() = here().device();
                  for (const auto type : {torch::kFloat32, torch::kInt64}) check_messages(group, type);
                },
                /*messages=*/false)
                .second,
            "");
}

TEST(NcclBackend, TensorsOnTheHostTravelThere) {
  // The tensors are not on the ranks' devices, so they are transferred through the host.
  EXPECT_EQ(outcome_on_fake(
                3, 30,
                [](World&, ProcessGroup& group) {
                  reset_fake_counts();
                  check_conformance(group);
                },
                /*messages=*/false)
                .second,
            "");
  EXPECT_EQ(fake_counts().calls, 0);
}

TEST(NcclBackend, EverythingIsGivenBack) {
  reset_fake_counts();
  outcome_on_fake(3, 30, [](World&, ProcessGroup& group) {
    conformance_device() = here().device();
    check_conformance(group, /*sends_until_received=*/true);
  });
  const FakeCounts counts = fake_counts();
  EXPECT_EQ(counts.live, 0);
  EXPECT_EQ(counts.aborted, 0);
  EXPECT_GT(counts.destroyed, 0);
  EXPECT_EQ(live_events(), 0);
}

TEST(NcclBackend, AStageLinkMovesMessagesBothWays) {
  EXPECT_EQ(
      outcome_on_fake(3, 30,
                      [](World&, ProcessGroup& group) {
                        const int rank = group.rank(), last = group.size() - 1;
                        StageLink link(group);
                        for (int microbatch = 0; microbatch < 4; ++microbatch) {
                          const StageMessage forward{StageMessage::Direction::kForward, rank, microbatch, "a"};
                          const StageMessage from_before{StageMessage::Direction::kForward, rank - 1, microbatch, "a"};
                          if (rank > 0) {
                            const TensorDict got = link.receive(from_before, rank - 1);
                            EXPECT_TRUE(torch::equal(got.get("hidden"),
                                                     torch::full({64, 3}, 1.0f * (rank - 1 + microbatch), here())));
                          }
                          TensorDict out;
                          out.set("hidden", torch::full({64, 3}, 1.0f * (rank + microbatch), here()).requires_grad_());
                          out.set("mask", torch::ones({64}, here(torch::kInt64)));
                          if (rank < last) link.send(forward, rank + 1, out);
                        }
                        for (int microbatch = 0; microbatch < 4; ++microbatch) {
                          const StageMessage backward{StageMessage::Direction::kBackward, rank, microbatch, "a"};
                          const StageMessage from_after{StageMessage::Direction::kBackward, rank + 1, microbatch, "a"};
                          if (rank < last)
                            EXPECT_TRUE(torch::equal(link.receive(from_after, rank + 1).get("hidden"),
                                                     torch::full({64, 3}, 10.0f * (rank + 1), here())));
                          TensorDict gradients;
                          gradients.set("hidden", torch::full({64, 3}, 10.0f * rank, here()));
                          if (rank > 0) link.send(backward, rank - 1, gradients);
                        }
                        link.flush();
                      })
          .second,
      "");
}

TEST(NcclBackend, AStageLinksMessagesMayChangeFromOneToTheNext) {
  EXPECT_EQ(outcome_on_fake(2, 30, [](World&, ProcessGroup& group) { check_changing_messages(group); }).second, "");
}

}  // namespace
}  // namespace gantry::testing
