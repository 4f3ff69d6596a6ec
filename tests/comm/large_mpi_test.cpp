// ranks: 2, also over tcp
// More bytes than an int can count, in one message and one collective: through shared memory, and between
// simulated hosts. Takes up to 14 GB of memory, so it only runs with `GANTRY_LONG=1 ./dev test`.
#include <cstdlib>

#include "conformance.h"
#include "gantry/tensors/libtorch.h"
#include "process_rig.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kBytes = (std::int64_t{1} << 31) + (1 << 20) + 7;

// Checks elements around the limits of chunks and beyond the range of an int.
void expect_values(const torch::Tensor& tensor, int expected) {
  ASSERT_EQ(tensor.numel(), kBytes);
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{1} << 30, (std::int64_t{1} << 31) - 1,
                                std::int64_t{1} << 31, (std::int64_t{1} << 31) + 1, kBytes - 1})
    EXPECT_EQ(tensor[at].item<int>(), expected) << at;
  EXPECT_EQ(tensor.min().item<int>(), expected);
  EXPECT_EQ(tensor.max().item<int>(), expected);
}

TEST(Large, MessagesAndCollectivesBeyondTwoGibibytes) {
  if (!std::getenv("GANTRY_LONG")) GTEST_SKIP() << "takes 14 GB of memory: GANTRY_LONG=1 runs it";
  for (const char* hosts : {"0,0", "0,1"}) {
    SCOPED_TRACE(hosts);
    ::setenv("GANTRY_PRETEND_HOSTS", hosts, 1);
    Job job({.timeout_seconds = 300});
    const auto& group = job.group;
    torch::Tensor tensor = torch::full({kBytes}, 1 + group->rank(), torch::kUInt8);
    if (group->rank() == 0) group->hand_over(tensor, 1, {});
    if (group->rank() == 1) expect_values(group->recv({{kBytes}, torch::kUInt8}, 0, {}).result(), 1);
    group->barrier().wait();
    tensor = torch::Tensor();  // the receiver owns it now
    tensor = torch::full({kBytes}, 1 + group->rank(), torch::kUInt8);
    group->all_reduce(tensor).wait();
    expect_values(tensor, 3);
    if (group->rank() == 1) tensor.fill_(9);
    group->broadcast(tensor, 1).wait();
    expect_values(tensor, 9);
    job.backend->close();
    ::unsetenv("GANTRY_PRETEND_HOSTS");
  }
}

}  // namespace
}  // namespace gantry::testing
