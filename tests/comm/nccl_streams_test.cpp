// Number of device streams of a job over five axes. The NCCL backend uses one stream per communicator, and
// LibTorch has 32 of each priority.
#include <algorithm>
#include <gtest/gtest.h>

#include "gantry/comm/nccl/nccl_backend.h"
#include "gantry/comm/process_group_mesh.h"

namespace gantry::testing {
namespace {

// A group without any communication, because only one rank exists.
class StillGroup final : public ProcessGroup {
 public:
  StillGroup(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Work send(const torch::Tensor&, int, const Tag&) override { return {}; }
  Work hand_over(const torch::Tensor&, int, const Tag&) override { return {}; }
  Work recv(const TensorSpec&, int, const Tag&) override { return {}; }
  Work start(const Collective&) override { return {}; }
  void abort(const std::string&) override {}

 private:
  int rank_, size_;
};

// Counts the streams that the NCCL backend would take for its groups.
class StreamCounter final : public Backend {
 public:
  StreamCounter(int rank, int size) : rank_(rank), size_(size) {}
  const char* name() const override { return "counter"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override {
    const int members = static_cast<int>(ranks.size());
    // One stream for collectives, and one for messages in each direction with each neighbour in the ring.
    if (members > 1) streams += 1 + (neighbours_send(label) ? 2 * std::min(members - 1, 2) : 0);
    const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<StillGroup>(static_cast<int>(place), members);
  }
  void abort(const std::string&) override {}
  bool has_ended(int) const override { return false; }

  int streams = 0;

 private:
  int rank_, size_;
};

TEST(NcclStreams, OfFiveAxesAreFewerThanADeviceHas) {
  const Mesh mesh = Mesh::hybrid(384, 4, 2, 3, {"pp", "dp", "tp"}, 16, 6);
  for (const int rank : {0, 100, 383}) {
    StreamCounter counter(rank, mesh.size());
    World world(counter, Config(), mesh);
    const ProcessGroupMesh groups(world);
    EXPECT_EQ(counter.streams, 11 + 4 + 4);  // the mesh's groups, and messages along pp and cp
    // Further groups that a plugin makes: for aborting a step, for the ring of `ulysses_ring`, and for a tied
    // parameter.
    groups.make_group("cp+tp", mesh.groups({axis::kContext, axis::kTensor}));
    for (int each = 0; each < 2; ++each) groups.make_group(axis::kContext, mesh.groups({axis::kContext}));
    groups.make_group("shared parameter", mesh.groups({axis::kPipeline}));
    EXPECT_LE(counter.streams, 32);
    for (int each = 0; each < 6; ++each)  // embedding and head over the pipeline
      groups.make_group("vocabulary", mesh.groups({axis::kPipeline, axis::kTensor}));
    EXPECT_LE(counter.streams, 2 * 32);  // the streams of two of the backend's three priorities
  }
}

}  // namespace
}  // namespace gantry::testing
