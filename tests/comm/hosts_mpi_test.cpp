// ranks: 5, also over tcp
// Groups whose ranks are on several hosts, which are simulated on this one. If every host holds contiguous
// ranks, partial sums are passed from host to host. Otherwise the ranks exchange slices.
#include <cstdlib>
#include <numeric>

#include "conformance.h"
#include "gantry/comm/reduce_kernels.h"
#include "gantry/tensors/libtorch.h"
#include "process_rig.h"
#include "rough.h"

namespace gantry::testing {
namespace {

constexpr int kHostRanks = 5;
constexpr const char* kPlacements[] = {
    "0,0,0,0,0",  // one host
    "0,0,1,1,1",  // uneven
    "0,1,1,2,2",  // one rank on the first host
    "0,0,0,1,1", "0,0,0,0,1",
    "0,1,0,1,0",  // not contiguous
    "0,1,2,3,4",  // one rank per host
};

// During its lifetime, the ranks behave as if they were on these hosts.
struct PretendedHosts {
  explicit PretendedHosts(const char* hosts) { ::setenv("GANTRY_PRETEND_HOSTS", hosts, 1); }
  ~PretendedHosts() { ::unsetenv("GANTRY_PRETEND_HOSTS"); }
};

// Reduces the inputs of all ranks with the kernel of the local backend.
torch::Tensor summed_by_rank(std::int64_t elements, torch::ScalarType type, ReduceOp op) {
  std::vector<torch::Tensor> all;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < kHostRanks; ++rank) {
    all.push_back(rough(rank, elements, type));
    inputs.push_back(all.back().data_ptr());
  }
  torch::Tensor sum = torch::empty({elements}, type);
  reduce_span(sum.data_ptr(), inputs.data(), kHostRanks, elements, type, op);
  return sum;
}

TEST(Hosts, EveryPlacementConforms) {
  const bool long_form = std::getenv("GANTRY_LONG") != nullptr;
  for (const char* placement : kPlacements) {
    SCOPED_TRACE(placement);
    const PretendedHosts hosts(placement);
    run_ranks(kHostRanks, [&](World&, ProcessGroupMesh& mesh) {
      ProcessGroup& group = mesh.world_group();
      if (long_form) return check_conformance(group);
      check_all_reduce(group, torch::kBFloat16);
      check_gathers(group, torch::kFloat64);
      check_broadcast_and_all_to_all(group, torch::kFloat32);
      check_messages(group, torch::kInt64);
      check_many_outstanding(group);
      check_order(group);
    });
  }
}

// With small buffers, so that there are many rounds and the last one is shorter.
void expect_same_sums(const char* placement, int direct_ranks) {
  Job job({.timeout_seconds = 30}, {.direct_bytes = 256, .direct_ranks = direct_ranks, .slot_bytes = 4096});
  for (const auto type : {torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kInt64})
    for (const std::int64_t elements : {1, 63, 1024, 1025, 2049, 20'001}) {
      const ReduceOp op = type == torch::kInt64 ? ReduceOp::kMax : ReduceOp::kSum;
      torch::Tensor sum = rough(job.rank(), elements, type);
      job.group->all_reduce(sum, op).wait();
      EXPECT_TRUE(torch::equal(sum, summed_by_rank(elements, type, op)))
          << placement << " " << direct_ranks << " " << type << " " << elements << " at rank " << job.rank();
    }
}

TEST(Hosts, EveryPlacementSumsToTheSameBits) {
  for (const char* placement : kPlacements) {
    const PretendedHosts hosts(placement);
    for (const int direct_ranks : {16, 2}) expect_same_sums(placement, direct_ranks);
  }
}

// Five ranks are more than direct_ranks: small parts are passed on in rounds, and larger ones are not.
TEST(Hosts, GathersOfManyRanksHaveTheRightParts) {
  for (const char* placement : kPlacements) {
    const PretendedHosts hosts(placement);
    Job job({.timeout_seconds = 30}, {.direct_bytes = 64, .direct_ranks = 4});
    for (const Sizes& sizes :
         {Sizes{1, 1, 1, 1, 1}, Sizes{3, 0, 5, 1, 2}, Sizes{0, 0, 0, 9, 0}, Sizes{30, 1, 0, 40, 9}}) {
      const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
      const torch::Tensor all = torch::arange(rows * 2, torch::kFloat32).view({rows, 2});
      const std::int64_t first = std::accumulate(sizes.begin(), sizes.begin() + job.rank(), std::int64_t{0});
      torch::Tensor gathered = torch::zeros({rows, 2});
      job.group->all_gather(gathered, all.narrow(0, first, sizes[static_cast<std::size_t>(job.rank())]).clone(), sizes)
          .wait();
      EXPECT_TRUE(torch::equal(gathered, all)) << placement << " at rank " << job.rank();
    }
  }
}

// All kinds of operations, with sizes around a full round, in two groups in turn. All operations are in
// flight at once.
TEST(Hosts, RoundsOfEverySizeDoNotMix) {
  for (const char* placement : kPlacements) {
    const PretendedHosts hosts(placement);
    Job job({.timeout_seconds = 30}, {.direct_bytes = 256, .slot_bytes = 4096});
    const auto other = job.backend->make_group("again", {0, 1, 2, 3, 4});
    const int rank = job.rank();
    std::vector<std::function<void()>> checks;
    std::vector<Work> works;
    std::vector<std::unique_ptr<torch::Tensor>> kept;
    const auto keep = [&](torch::Tensor tensor) -> torch::Tensor& {
      return *kept.emplace_back(std::make_unique<torch::Tensor>(std::move(tensor)));
    };
    const auto expect = [&](const torch::Tensor& got, const torch::Tensor& wanted, const char* what) {
      checks.push_back([=, &got] { EXPECT_TRUE(torch::equal(got, wanted)) << placement << " " << what; });
    };
    for (const std::int64_t rows : {0, 1, 5, 1023, 1024, 1025, 5119, 5120, 5121, 12'345}) {
      for (ProcessGroup* group : {job.group.get(), other.get()}) {
        torch::Tensor& sum = keep(values(rank, {rows}, torch::kFloat32));
        works.push_back(group->all_reduce(sum));
        expect(sum, summed(kHostRanks, {rows}, torch::kFloat32), "all_reduce");

        const Sizes sizes{rows, 0, 1, rows / 2, 3};
        const std::int64_t total = rows_before(sizes, kHostRanks), first = rows_before(sizes, rank);
        const torch::Tensor all = values(2, {total}, torch::kFloat32);
        torch::Tensor& gathered = keep(torch::zeros({total}));
        works.push_back(group->all_gather(gathered, all.narrow(0, first, sizes[rank]), sizes));
        expect(gathered, all, "all_gather");

        torch::Tensor& part = keep(torch::zeros({sizes[rank]}));
        works.push_back(group->reduce_scatter(part, values(rank, {total}, torch::kFloat32), sizes));
        expect(part, summed(kHostRanks, {total}, torch::kFloat32).narrow(0, first, sizes[rank]), "reduce_scatter");

        const int root = static_cast<int>(rows % kHostRanks);
        torch::Tensor& notified = keep(values(rank == root ? 4 : 0, {rows}, torch::kFloat32));
        works.push_back(group->broadcast(notified, root));
        expect(notified, values(4, {rows}, torch::kFloat32), "broadcast");

        // Rank r sends rows * r / 2 + q rows to rank q, so every pair has its own number of rounds.
        Sizes sent, received;
        std::vector<torch::Tensor> wanted;
        for (int peer = 0; peer < kHostRanks; ++peer) {
          sent.push_back(rows * rank / 2 + peer);
          received.push_back(rows * peer / 2 + rank);
          wanted.push_back(torch::full({received.back()}, 10 * peer + rank, torch::kFloat32));
        }
        std::vector<torch::Tensor> given;
        for (int peer = 0; peer < kHostRanks; ++peer)
          given.push_back(torch::full({sent[peer]}, 10 * rank + peer, torch::kFloat32));
        torch::Tensor& taken = keep(torch::zeros({rows_before(received, kHostRanks)}));
        works.push_back(group->all_to_all(taken, torch::cat(given), received, sent));
        expect(taken, torch::cat(wanted), "all_to_all");
        works.push_back(group->barrier());
      }
    }
    for (std::size_t i = works.size(); i-- > 0;) works[i].wait();
    for (const auto& check : checks) check();
  }
}

TEST(Hosts, DifferentRootsAreNamed) {
  Job job;
  torch::Tensor tensor = torch::ones({10});
  std::string error;
  try {
    job.group->broadcast(tensor, job.rank() == 3 ? 1 : 0).wait();
  } catch (const PeerError& failure) {
    error = failure.what();
  }
  EXPECT_NE(error.find("from 0"), std::string::npos) << error;
  EXPECT_NE(error.find("from 1"), std::string::npos) << error;
}

}  // namespace
}  // namespace gantry::testing
