// ranks: 2 4, also over tcp
// The NCCL backend over ranks that are processes with one fake device each, over MPI and over sockets. The
// fake NCCL ends a communicator as NCCL does within a host: the call waits until every member has called it.
#include <filesystem>

#include "conformance.h"
#include "gantry/launch/backends.h"
#include "nccl_ranks.h"
#include "program.h"
#include "stage_link_cases.h"
#include "training_halves.h"

namespace gantry::testing {
namespace {

Config processes_config(const Layout& layout) {
  Config config = layout_config(layout);
  config.comm.recorder = 0;
  return config;
}

void run_processes(const Config& config, const std::function<void(World&, ProcessGroupMesh&)>& body) {
  const auto on_rank = [&](World& world) {
    ProcessGroupMesh mesh(world);
    body(world, mesh);
    mesh.world_group().barrier().wait();
  };
  EXPECT_EQ(launch_on_devices(config, on_rank, {.processes = true}), 0) << "a rank failed; its error is above";
  EXPECT_EQ(fake_counts().misuses, 0);
  EXPECT_EQ(fake_counts().live, 0) << "communicators are left";
  EXPECT_EQ(live_events(), 0);
}

// The job of two ranks tests the sizes 1 and 2, the job of four ranks only 4.
TEST(NcclProcesses, Conform) {
  const int ranks = launched_ranks();
  run_processes(processes_config({.tensor = ranks}), [&](World& world, ProcessGroupMesh& mesh) {
    EXPECT_STREQ(world.backend().name(), "nccl");
    EXPECT_EQ(choose_base_backend("nccl"), under_mpirun() ? "mpi" : "tcp");
    conformance_device() = world.device();
    for (int size = ranks > 2 ? ranks : 1; size <= ranks; ++size)
      on_first_ranks(world, mesh, size,
                     [](ProcessGroup& group) { check_conformance(group, /*sends_until_received=*/true); });
    conformance_device() = torch::kCPU;
  });
}

// Neighbours along pp and cp have one communicator for each direction. Each rank ends its communicators in a
// different order.
TEST(NcclProcesses, NeighboursEndTheirCommunicatorsInAnyOrder) {
  const int ranks = launched_ranks();
  for (const Layout layout : {Layout{.pipeline = ranks}, Layout{.context = ranks}}) {
    reset_fake_counts();
    run_processes(processes_config(layout), [&](World& world, ProcessGroupMesh& mesh) {
      ProcessGroup& group = layout.pipeline > 1 ? mesh.group(axis::kPipeline) : mesh.group(axis::kContext);
      const int next = (world.rank() + 1) % ranks, last = (world.rank() + ranks - 1) % ranks;
      Work sending = group.send(torch::full({4}, 1.0f * world.rank(), here()), next, {});
      EXPECT_EQ(group.recv(spec_here({4}), last, {}).result()[0].item<float>(), 1.0f * last);
      sending.wait();
    });
    EXPECT_EQ(fake_counts().aborted, 0);
    EXPECT_EQ(fake_counts().narrow, ranks == 2 ? 2 : 4) << "messages to and from each neighbour";
  }
}

// A rank may close a group while another rank still uses it.
TEST(NcclProcesses, GroupsMayEndInOppositeOrders) {
  run_processes(processes_config({.tensor = launched_ranks()}), [&](World& world, ProcessGroupMesh&) {
    std::vector<int> everyone(launched_ranks());
    std::iota(everyone.begin(), everyone.end(), 0);
    std::vector<std::unique_ptr<ProcessGroup>> groups;
    for (int i = 0; i < 3; ++i) groups.push_back(world.backend().make_group("more", everyone));
    torch::Tensor tensor = torch::ones({5}, here());
    for (const auto& group : groups) group->all_reduce(tensor).wait();
    if (world.rank() == 0) std::reverse(groups.begin(), groups.end());
    while (!groups.empty()) groups.pop_back();
  });
}

TEST(NcclProcesses, AStageLinksMessagesMayChangeFromOneToTheNext) {
  run_processes(processes_config({.pipeline = launched_ranks()}), [](World&, ProcessGroupMesh& mesh) {
    ProcessGroup& group = mesh.group(axis::kPipeline);
    if (group.rank() < 2) check_changing_messages(group);
  });
}

// The weights after two steps, a save, a load and two more steps are the same as with threads.
void expect_numbers_of_threads(const SmallRunOptions& options) {
  Config config = small_config(options);
  config.output = "trained";  // in the working directory, which all ranks share
  config.optimizer.clip_grad_norm = 0.5;
  Halves processes, threads;
  const auto train = [&](World& world) {
    if (world.is_main()) std::filesystem::remove_all(config.output);
    ProcessGroupMesh(world).world_group().barrier().wait();
    train_in_halves(world, config, config.output + "/checkpoints", processes);
  };
  ASSERT_EQ(launch_on_devices(config, train, {.processes = true}), 0);
  EXPECT_EQ(fake_counts().misuses, 0);
  EXPECT_EQ(fake_counts().live, 0);
  if (processes.saved.size() == 0) return;  // only rank 0 has results
  const ScratchFolder scratch;
  config.comm.backend = "local";
  config.output = scratch.path();
  ASSERT_EQ(launch(config, [&](World& world) { train_in_halves(world, config, scratch / "threads", threads); }), 0);
  ASSERT_GT(threads.saved.size(), 0u);
  expect_same(threads.saved, processes.saved, "after two steps");
  expect_same(threads.resumed, processes.resumed, "after two more from the checkpoint");
}

TEST(NcclProcesses, TrainToTheNumbersOfThreads) {
  if (launched_ranks() == 2) {
    expect_numbers_of_threads({.layout = {.pipeline = 2}});
    expect_numbers_of_threads({.layout = {.context = 2}});
    expect_numbers_of_threads({.layout = {.data = 2}, .zero = 3});
  } else {
    expect_numbers_of_threads({.layout = {.pipeline = 2, .tensor = 2}});
    expect_numbers_of_threads({.layout = {.pipeline = 2, .data = 2}, .zero = 2, .schedule = "zb_h1"});
    expect_numbers_of_threads({.layout = {.data = 2, .context = 2}, .zero = 1});
  }
}

}  // namespace
}  // namespace gantry::testing
