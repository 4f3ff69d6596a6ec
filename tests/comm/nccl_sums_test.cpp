// Reductions in rank order over NCCL: slices are exchanged, added by one kernel and gathered. The results are
// bitwise identical to those of thread ranks.
#include <atomic>

#include "conformance.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"
#include "nccl_ranks.h"

namespace gantry::testing {
namespace {

Config summing_by_rank(const Layout& layout) {
  Config config = layout_config(layout);
  config.comm.recorder = 0;
  config.comm.sums_by_rank = true;
  return config;
}

// Counts the reductions that NCCL itself performs.
class CountedSums {
 public:
  CountedSums() {
    set_fake_faults([this](const FakeCall& call) {
      if (call.kind.find("Reduce") != std::string::npos) ++count_;
      return call.number % 5 == call.rank ? FakeFault::kDelay : FakeFault::kNone;
    });
  }
  ~CountedSums() { set_fake_faults(nullptr); }
  int count() const { return count_; }

 private:
  std::atomic<int> count_ = 0;
};

// Values with cancellation and rounding. Another order of addition gives another sum.
torch::Tensor rough_values(int rank, std::int64_t elements, torch::ScalarType type) {
  return ((torch::arange(elements, torch::kFloat64) * 0.7 + rank).sin() * std::pow(10, rank % 3)).to(type);
}

// Returns the results of reductions of rough values, for several dtypes and sizes.
std::vector<torch::Tensor> rough_sums(ProcessGroup& group, torch::Device device) {
  std::vector<torch::Tensor> sums;
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
    for (const std::int64_t elements : {1, 2, 12, 1001}) {
      torch::Tensor sum = rough_values(group.rank(), elements, type).to(device);
      group.all_reduce(sum).wait();
      sums.push_back(sum.cpu());
    }
    for (const Sizes& sizes : {Sizes(group.size(), 3), uneven_sizes(group.size())}) {
      const std::int64_t rows = rows_before(sizes, group.size());
      const torch::Tensor in = rough_values(group.rank(), rows * 5, type).view({rows, 5}).to(device);
      torch::Tensor part = in.narrow(0, rows_before(sizes, group.rank()), sizes[group.rank()]);  // its own rows
      group.reduce_scatter(part, in, sizes).wait();
      torch::Tensor full = torch::empty({rows, 5}, in.options());
      group.all_gather(full, part.contiguous(), sizes).wait();
      sums.push_back(full.cpu());
    }
  }
  return sums;
}

TEST(NcclSums, ByRankConformAtEverySize) {
  const CountedSums counted;
  for (const int size : {1, 2, 3, 4})
    EXPECT_EQ(outcome_on_fake(summing_by_rank({.tensor = size}),
                              [](World&, ProcessGroup& group) {
                                conformance_device() = here().device();
                                for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kInt64}) {
                                  check_all_reduce(group, type);
                                  check_gathers(group, type);
                                }
                                check_many_outstanding(group);
                                check_dropped(group);
                              })
                  .second,
              "");
  EXPECT_EQ(fake_counts().misuses, 0);
}

TEST(NcclSums, ByRankHaveTheBitsOfThreads) {
  const CountedSums counted;
  for (const int size : {2, 3, 4}) {
    std::vector<torch::Tensor> expected, actual;
    run_ranks(size, [&](World&, ProcessGroupMesh& mesh) {
      auto sums = rough_sums(mesh.world_group(), torch::kCPU);
      if (mesh.rank() == 0) expected = std::move(sums);
    });
    const auto [code, said] = outcome_on_fake(summing_by_rank({.tensor = size}), [&](World&, ProcessGroup& group) {
      auto sums = rough_sums(group, here().device());
      if (group.rank() == 0) actual = std::move(sums);
    });
    EXPECT_EQ(code, 0) << said;
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(torch::equal(actual[i], expected[i])) << size << " ranks, sum " << i;
  }
  EXPECT_EQ(counted.count(), 0) << "of NCCL's own sums";
}

TEST(NcclSums, GoInNcclsOrderUnlessTheyAreAskedFor) {
  const CountedSums counted;
  Config config = summing_by_rank({.tensor = 2});
  config.comm.sums_by_rank = false;
  outcome_on_fake(config, [&](World&, ProcessGroup& group) { rough_sums(group, here().device()); });
  EXPECT_GT(counted.count(), 0);
}

// Kernels are late, so an operation that reads a slice before the addition, or reuses memory that is still in
// use, gives wrong values.
TEST(NcclSums, ByRankWaitForWhatTheyAdd) {
  set_kernel_timing(KernelTiming::kLate, 100);
  outcome_on_fake(summing_by_rank({.tensor = 3}), [](World&, ProcessGroup& group) {
    for (int i = 0; i < 20; ++i) {
      torch::Tensor tensor = torch::full({2000}, i + group.rank(), here(torch::kFloat64));
      group.all_reduce(tensor).wait();
      EXPECT_TRUE(torch::equal(tensor, torch::full({2000}, 3 * i + 3, here(torch::kFloat64)))) << i;
    }
  });
  set_kernel_timing(KernelTiming::kAtOnce);
}

}  // namespace
}  // namespace gantry::testing
