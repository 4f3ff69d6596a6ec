// Overlap of communication and computation, tested by the order of events on fake devices. An NCCL operation
// is held back on its stream until a kernel that should run at the same time has run. That kernel never runs
// if the program waits for the operation.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "../checkpoint/small_run.h"
#include "device_events.h"
#include "device_ranks.h"
#include "gantry/nn/forward.h"
#include "gantry/nn/linear.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

// Holds back operations of one kind on each watched device. `held` selects them by their number since
// watch(). `extra` is the kernel that has to run meanwhile.
class HeldBack {
 public:
  HeldBack(std::string kind, std::function<bool(int)> held, std::string extra)
      : kind_(std::move(kind)), held_(std::move(held)), extra_(std::move(extra)) {
    set_device_listener([this](const DeviceEvent& event) { note(event); });
  }
  ~HeldBack() { set_device_listener(nullptr); }
  HeldBack(const HeldBack&) = delete;
  HeldBack& operator=(const HeldBack&) = delete;

  // Starts to watch the calling rank's device.
  void watch(const World& world) {
    const auto device = world.device().index();
    c10::impl::getDeviceGuardImpl(kPretendType)->synchronizeDevice(device);
    const std::lock_guard lock(mutex_);
    devices_[device].watched = true;
  }
  // Waits until the device has finished its work, and stops watching it.
  void leave(const World& world) {
    const auto device = world.device().index();
    c10::impl::getDeviceGuardImpl(kPretendType)->synchronizeDevice(device);
    const std::lock_guard lock(mutex_);
    devices_[device].watched = false;
  }

  // `held`: number of operations that were held back. `hidden`: those for which the kernel ran after the
  // operation was submitted and before it began.
  struct Counts {
    int held = 0, hidden = 0;
  };
  Counts counts(int device) {
    const std::lock_guard lock(mutex_);
    return devices_[device].counts;
  }
  std::set<int> streams(const std::string& what, int device) {
    const std::lock_guard lock(mutex_);
    return devices_[device].streams[what];
  }

 private:
  static constexpr std::chrono::seconds kLongest{3};  // time limit if the kernel does not run

  struct OfDevice {
    bool watched = false;
    std::vector<bool> extra;  // per operation: the kernel has run since its submission
    int begun = 0;
    Counts counts;
    std::map<std::string, std::set<int>> streams;
  };

  void note(const DeviceEvent& event) {
    std::unique_lock lock(mutex_);
    OfDevice& of = devices_[event.device];
    if (!of.watched) return;
    of.streams[event.what].insert(event.stream);
    if (event.what == kind_ && event.kind == DeviceEvent::Kind::kGiven) of.extra.push_back(false);
    if (event.what.find(extra_) != std::string::npos && event.kind == DeviceEvent::Kind::kDone) {
      of.extra.assign(of.extra.size(), true);
      changed_.notify_all();
    }
    if (event.what != kind_ || event.kind != DeviceEvent::Kind::kBegins) return;
    const int number = of.begun++;
    if (!held_(number)) return;
    ++of.counts.held;
    of.counts.hidden += changed_.wait_for(lock, kLongest, [&] { return of.extra[static_cast<std::size_t>(number)]; });
  }

  const std::string kind_;
  const std::function<bool(int)> held_;
  const std::string extra_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::map<int, OfDevice> devices_;
};

bool the_first(int number) { return number == 0; }
bool all_but_the_fourth(int number) { return number < 3; }  // no computation follows the last piece
bool all_but_the_first(int number) { return number > 0; }

void expect_hidden(HeldBack& operations, int devices, int held) {
  for (int device = 0; device < devices; ++device) {
    EXPECT_EQ(operations.counts(device).held, held) << "device " << device;
    EXPECT_EQ(operations.counts(device).hidden, held) << "device " << device;
  }
}

Config quiet(const Layout& layout) {
  Config config = layout_config(layout);
  config.comm.recorder = 0;
  return config;
}

torch::Tensor values(std::vector<std::int64_t> shape, const World& world) {
  std::int64_t elements = 1;
  for (const auto size : shape) elements *= size;
  return torch::sin(torch::arange(elements, torch::kFloat64)).view(shape).to(world.device());
}

nn::Linear split_linear(std::int64_t in, std::int64_t out, const ShardStyle& style, ProcessGroup& group,
                        const World& world) {
  nn::Linear made(in, out);
  made->to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    made->weight.copy_(torch::cos(torch::arange(in * out, torch::kFloat64)).view({out, in}));
  }
  made->shard(style, group);
  made->to(world.device());
  return made;
}

// The output and the gradients of a sharded layer.
struct Made {
  torch::Tensor output, of_input, of_weight;
};

Made made_by(nn::Linear& layer, const torch::Tensor& input, int pieces, const World& world, HeldBack* forward,
             HeldBack* backward) {
  const torch::Tensor leaf = input.detach().clone().requires_grad_();
  layer->zero_grad();
  Made made;
  {
    const ForwardScope scope({.tensor_pieces = pieces});
    if (forward) forward->watch(world);
    made.output = layer(leaf);
    if (forward) forward->leave(world);
  }
  const torch::Tensor sum = (made.output * made.output).sum();
  if (backward) backward->watch(world);
  sum.backward();
  if (backward) backward->leave(world);
  made.of_input = leaf.grad();
  made.of_weight = layer->weight.grad().clone();
  return made;
}

// A matrix multiplication may round differently if it has another number of rows.
void expect_same_numbers(const Made& expected, const Made& actual) {
  const auto near = [](const torch::Tensor& a, const torch::Tensor& b) {
    return torch::allclose(a.cpu(), b.cpu(), 1e-12, 1e-12);
  };
  EXPECT_TRUE(near(expected.output, actual.output));
  EXPECT_TRUE(near(expected.of_input, actual.of_input));
  EXPECT_TRUE(near(expected.of_weight, actual.of_weight));
}

constexpr int kPieces = 4;

void on_two_devices(const std::function<void(World&, ProcessGroup&)>& body) {
  EXPECT_EQ(launch_on_devices(quiet({.tensor = 2}),
                              [&](World& world) {
                                const ProcessGroupMesh mesh(world);
                                body(world, mesh["tp"]);
                                mesh["tp"].barrier().wait();
                              }),
            0);
}

// Checks that the forward of a sharded layer in pieces equals the forward without pieces, and that it hides
// all operations but one.
void expect_hidden_pieces(HeldBack& operations, std::int64_t in, std::int64_t out, const ShardStyle& style,
                          const std::vector<std::int64_t>& shape) {
  on_two_devices([&](World& world, ProcessGroup& group) {
    nn::Linear layer = split_linear(in, out, style, group, world);
    const torch::Tensor part = values(shape, world);
    const Made full = made_by(layer, part, 1, world, nullptr, nullptr);
    expect_same_numbers(full, made_by(layer, part, kPieces, world, &operations, nullptr));
  });
  expect_hidden(operations, 2, kPieces - 1);
}

TEST(DeviceOverlap, TheInputGradientsSumTravelsWhileTheWeightGradientIsComputed) {
  HeldBack sums("ncclAllReduce", the_first, "addmm");
  on_two_devices([&](World& world, ProcessGroup& group) {
    nn::Linear up = split_linear(16, 32, Column{}, group, world);
    made_by(up, values({8, 16}, world), 1, world, nullptr, &sums);
  });
  expect_hidden(sums, 2, 1);
}

TEST(DeviceOverlap, ASumInPiecesTravelsWhileTheNextPieceIsComputed) {
  HeldBack sums("ncclAllReduce", all_but_the_fourth, "aten::mm");
  expect_hidden_pieces(sums, 32, 16, Row{}, {3, 7, 16});
}

// The gradient is gathered in pieces too, and each piece is multiplied by the weight when it arrives.
TEST(DeviceOverlap, ScatteredSumsAndGatheredGradientsTravelInPieces) {
  HeldBack sums("ncclReduceScatter", all_but_the_fourth, "aten::mm");
  expect_hidden_pieces(sums, 32, 16, Row{.output = Shard{1}}, {2, 8, 16});
  HeldBack gathers("ncclAllGather", all_but_the_first, "aten::mm");
  on_two_devices([&](World& world, ProcessGroup& group) {
    nn::Linear down = split_linear(32, 16, Row{.output = Shard{1}}, group, world);
    made_by(down, values({2, 8, 16}, world), kPieces, world, nullptr, &gathers);
  });
  expect_hidden(gathers, 2, kPieces - 1);
}

TEST(DeviceOverlap, AGatherInPiecesTravelsWhileThePieceBeforeIsComputed) {
  HeldBack gathers("ncclAllGather", all_but_the_first, "addmm");
  expect_hidden_pieces(gathers, 16, 32, Column{.input = Shard{1}}, {2, 4, 16});
}

// Runs two steps of a small run. In the second one, operations are held back on every device.
void run_small_held(const Config& config, HeldBack& operations) {
  EXPECT_EQ(launch_on_devices(config,
                              [&](World& world) {
                                SmallRun run(world, config);
                                run.step(0);
                                operations.watch(world);
                                run.step(1);
                                operations.leave(world);
                                run.mesh().world_group().barrier().wait();
                              }),
            0);
}

TEST(DeviceOverlap, TheFirstBucketIsReducedWhileTheBackwardGoesOn) {
  Config config = small_config({.layout = {.data = 2}});
  config.comm.recorder = 0;
  config.parallel.bucket_mb = 0.001;
  HeldBack sums("ncclAllReduce", the_first, "silu_backward");
  run_small_held(config, sums);
  expect_hidden(sums, 2, 1);
}

// While the first stage sends, its forward of the second microbatch begins. While the last stage sends the
// first microbatch's gradient, its forward of the second microbatch begins.
TEST(DeviceOverlap, WhatStagesSendTravelsOnAStreamOfItsOwnWhileTheyCompute) {
  Config config = small_config({.layout = {.pipeline = 2}});
  config.comm.recorder = 0;
  HeldBack sends("ncclSend", the_first, "aten::silu");
  run_small_held(config, sends);
  expect_hidden(sends, 2, 1);
  for (int device = 0; device < 2; ++device) {
    const std::set<int> computing = sends.streams("aten::silu", device), sending = sends.streams("ncclSend", device),
                        receiving = sends.streams("ncclRecv", device);
    EXPECT_EQ(computing, std::set<int>{0}) << device;
    EXPECT_EQ(sending.size(), 1U) << device;
    EXPECT_EQ(receiving.size(), 1U) << device;
    EXPECT_NE(sending, receiving) << device;
    EXPECT_FALSE(sending.contains(0) || receiving.contains(0)) << device;
  }
}

}  // namespace
}  // namespace gantry::testing
