// Ranks with one device each, whose tensors are sent over NCCL. Does not include nccl.h, so that its users do
// not need it.
//
// It is based on another backend, the host backend: local if the ranks are threads, mpi if they are
// processes. The host backend starts the ranks, distributes NCCL's unique ids, carries tensors in host memory
// and the heads of messages, and spreads failures.
//
// Each group has one communicator for its collectives, which run in the order of the calls. NCCL's messages
// have no tags, and two messages that cross on one stream may wait for each other for ever. So each direction
// of each pair of ring neighbours has its own communicator and stream, with this rule: a receive is issued to
// the device only after its send was.
//
// The sender issues its sends to a neighbour in the order of the calls. For each it sends a head (tag, dtype,
// shape) over the host. The receiver takes the heads in that order, issues a receive with this dtype and
// shape, and passes the tensor to the call with the same tag. So tags match in any order. Absent tensors and
// wrong shapes are known before anything waits on the device, and no stream waits for an operation that is
// queued after it. If more than 32 streams are in use, some of them share a hardware queue of the device. The
// guarantee then does not hold for them.
//
// The wait() of a Work makes the current stream wait, not the host. Reductions add in NCCL's own order,
// unless sums_by_rank is set. Then ranks exchange slices, each rank adds its own slice in rank order
// (comm/device_sum.h), and an all_reduce gathers the slices again.
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
  torch::Device device = torch::kCPU;  // the device of this rank
  WaitLimits waits;
  bool registers_memory = false;                  // see comm/registered_memory.h
  bool sums_by_rank = false;                      // reductions bitwise identical to other backends
  std::function<std::string(int)> describe_rank;  // by world rank
  // Returns whether a group with this label gets communicators for messages. If not, its messages are sent
  // over the host.
  std::function<bool(const std::string& label)> carries_messages = [](const std::string&) { return true; };
};

// Returns whether neighbours in a group with this label send each other device tensors: in a pipeline, and in
// a ring along the sequence.
bool neighbours_send(const std::string& label);

class NcclBackend final : public Backend {
 public:
  // Collective over the ranks of `base`, in a process that has called prepare_nccl() (launch/backends.h).
  // `base` must outlive the backend.
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

// Returns the options for a rank of `base` on that device. `base` must outlive them.
NcclOptions nccl_options(World& base, torch::Device device);
// Runs that rank's part of the launch: `body` in a world on the device. Collective over the ranks of `base`.
void run_on_device(NcclOptions options, World& base, const std::function<void(World&)>& body);

int nccl_version();  // version of the loaded library: 23000 is 2.30.0

}  // namespace gantry
