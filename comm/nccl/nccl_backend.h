// Ranks with a device each, whose tensors travel by NCCL. Free of nccl.h, so that nothing else needs it.
//
// It stands on another backend, the host (local where ranks are threads, mpi where they are processes), which starts
// the ranks, brings NCCL's unique ids, carries tensors in host memory and the heads of messages, and spreads failures.
//
// Collectives go over one communicator a group, in the order they are called. NCCL's messages have no tags and two that
// cross on one stream may wait for each other for ever, so each direction of each pair of ring neighbours has a
// communicator and a stream of its own, and this rule holds: a receive is put on the device only after its send was.
// The sender issues its sends to a neighbour in the order of the calls and sends a head (tag, dtype, shape) over the
// host for each; the receiver takes heads in that order, issues a receive of what the head says, and gives the tensor
// to the call whose tag it is. So tags match in any order, absent tensors and wrong shapes are known before anything
// waits on the device, and no stream waits for something that is behind it. If more than 32 streams are in use, some of
// them share a hardware queue of the device, for which this does not hold.
//
// A Work's wait() makes the current stream wait, not the host. Sums go in NCCL's own order, unless they are asked to go
// by rank: then ranks exchange slices, each adds its own (comm/device_sum.h), and an all_reduce gathers them again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/wait_limits.h"
#include "gantry/comm/world.h"

namespace gantry {

class NcclJob;

struct NcclOptions {
  torch::Device device = torch::kCPU;  // this rank's
  WaitLimits waits;
  bool registers_memory = false;                  // groups give registered memory (comm/registered_memory.h)
  bool sums_by_rank = false;                      // with the bits of the other backends
  std::function<std::string(int)> describe_rank;  // by world rank
  // Whether a group of this label gets communicators for messages; without, its messages go through the host.
  std::function<bool(const std::string& label)> carries_messages = [](const std::string&) { return true; };
};

// Whether neighbours in a group of that label send each other what they compute: those of a pipeline, and of a ring
// along a sequence.
bool neighbours_send(const std::string& label);

class NcclBackend final : public Backend {
 public:
  // Collective over the ranks of `base`, in a process that called prepare_nccl() (launch/backends.h). `base` must
  // outlive the backend.
  NcclBackend(Backend& base, NcclOptions options);
  ~NcclBackend() override;

  const char* name() const override { return "nccl"; }
  int rank() const override { return base_.rank(); }
  int size() const override { return base_.size(); }
  torch::Device device() const override;
  std::shared_ptr<DeviceEnd> take_end() const override;
  // The group must not outlive `base`.
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override;
  bool has_ended(int rank) const override { return base_.has_ended(rank); }

 private:
  Backend& base_;
  std::shared_ptr<NcclJob> job_;
};

// What a launch has for a rank of `base`, which must outlive it, on that device.
NcclOptions nccl_options(World& base, torch::Device device);
// That rank's part of the launch: `body` in a world on the device. Collective over the ranks of `base`.
void run_on_device(NcclOptions options, World& base, const std::function<void(World&)>& body);

int nccl_version();  // of the library that is loaded: 23000 is 2.30.0

}  // namespace gantry
