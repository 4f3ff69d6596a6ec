// ranks: 4
// Ranks that are processes and share one fake device: all operations, and training with the same results as
// on the CPU.
#include "conformance.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "shared_device_ranks.h"

namespace gantry::testing {
namespace {

const bool on_shared_device = [] {
  start_ranks() = [](const Config& config, const std::function<void(World&)>& body) {
    return launch_on_shared_device(config, body);
  };
  return true;
}();

class LateSharedKernels {
 public:
  explicit LateSharedKernels(int microseconds) { set_kernel_timing(KernelTiming::kLate, microseconds); }
  ~LateSharedKernels() { set_kernel_timing(KernelTiming::kAtOnce); }
};

void on_device(World& world, ProcessGroupMesh& mesh, int size, const std::function<void(ProcessGroup&)>& body) {
  conformance_device() = world.device();
  on_first_ranks(world, mesh, size, body);
  conformance_device() = torch::kCPU;
}

TEST(SharedDevice, ConformsAtEverySize) {
  run_ranks(4, [](World& world, ProcessGroupMesh& mesh) {
    EXPECT_STREQ(world.backend().name(), "ipc");
    EXPECT_EQ(world.device(), pretend_device(0));
    for (const int size : {1, 2, 4})
      on_device(world, mesh, size, [](ProcessGroup& group) { check_conformance(group); });
  });
}

TEST(SharedDevice, TensorsOnTheHostTravelThere) {
  run_ranks(4, [](World& world, ProcessGroupMesh& mesh) {
    on_first_ranks(world, mesh, 2, [](ProcessGroup& group) {
      check_all_reduce(group, torch::kFloat32);
      check_messages(group, torch::kFloat32);
    });
  });
}

TEST(SharedDevice, ConformsWithLateKernels) {
  const LateSharedKernels late(200);
  run_ranks(4, [](World& world, ProcessGroupMesh& mesh) {
    on_device(world, mesh, 3, [](ProcessGroup& group) {
      for (const auto type : {torch::kFloat32, torch::kBFloat16}) check_type(group, type);
      check_outstanding(group);
      check_sent_buffers(group, /*until_received=*/false);
      check_handed_over(group);
    });
  });
}

// Returns the number of reductions that were wrong on any rank with late kernels.
double wrong_sums(ProcessGroup& group) {
  double wrong = 0;
  for (int i = 0; i < 30; ++i) {
    torch::Tensor tensor = make_full({2000}, i + group.rank(), torch::kFloat64);
    group.all_reduce(tensor).wait();
    const int expected = group.size() * i + group.size() * (group.size() - 1) / 2;
    wrong += torch::equal(tensor, make_full({2000}, expected, torch::kFloat64)) ? 0 : 1;
  }
  return all_reduce_number(group, wrong);
}

TEST(SharedDevice, AWaitForAnotherProcessThatIsLeftOutIsSeen) {
  const LateSharedKernels late(2000);
  run_ranks(4, [](World& world, ProcessGroupMesh& mesh) {
    on_device(world, mesh, 2, [](ProcessGroup& group) {
      EXPECT_EQ(wrong_sums(group), 0);
      set_sharing_faults({.drops_wait = 2});
      EXPECT_GT(wrong_sums(group), 0);
      set_sharing_faults({});
    });
  });
}

TEST(SharedDevice, StagesAndTensorRanksTrainAsOnTheCpu) {
  const ModelCase what{.family = "llama", .layers = 2, .dropout = 0.1, .batches = {6, 5}};
  const CaseResult one = run_case(what, {}, "local");
  for (const Parallelism& how :
       {Parallelism{.layout = {.pipeline = 2, .tensor = 2}, .microbatches = 2, .sequence_parallel = true},
        Parallelism{.layout = {.data = 2, .tensor = 2}, .microbatches = 2, .zero = 2}}) {
    const CaseResult shared = run_case(what, how), threads = run_case(what, how, "local");
    expect_identical(threads, shared, describe(how));
    expect_equal(one, shared, 1e-10, describe(how));
    const LateSharedKernels late(100);
    expect_identical(threads, run_case(what, how), describe(how) + ", late");
  }
}

}  // namespace
}  // namespace gantry::testing
