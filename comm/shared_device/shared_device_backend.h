// Ranks that are processes of one host and share one device: any layout on a single GPU, without NCCL.
//
// It is based on the MPI backend, which starts the ranks, carries tensors in host memory, and carries the
// descriptions of tensors on the device (device_sharing.h). The engine of that backend advances all
// operations, with its deadlines and error texts: a thread that waits for any operation advances these too.
// In a Work's wait(), the host waits until all ranks have called the operation, and the device's current
// stream then waits for it. Reductions run on the device in rank order, and are bitwise identical to the
// other backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/processes/process_backend.h"
#include "gantry/comm/shared_device/device_sharing.h"
#include "gantry/comm/world.h"

namespace gantry {

class SharedDeviceJob;

class SharedDeviceBackend final : public Backend {
 public:
  // Collective over the host's ranks. Both arguments must outlive it. Throws ResourceError, on every rank, if
  // the ranks are on several hosts or have different devices, or if one rank cannot open memory of another
  // one.
  SharedDeviceBackend(ProcessBackend& base, DeviceSharing& sharing);
  ~SharedDeviceBackend() override;

  const char* name() const override { return "ipc"; }
  int rank() const override { return base_.rank(); }
  int size() const override { return base_.size(); }
  torch::Device device() const override;
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override { base_.abort(reason); }
  bool has_ended(int rank) const override { return base_.has_ended(rank); }

  // Collective; call it when the rank's work has ended without error. It ensures that no process ends while
  // another one reads its memory.
  void close();

 private:
  ProcessBackend& base_;
  std::shared_ptr<SharedDeviceJob> job_;
  std::unique_ptr<ProcessGroup> everyone_;
};

// Runs a rank's part of the launch on `host`, whose backend is mpi: `body` in a world on the device.
void run_on_shared_device(World& host, DeviceSharing& sharing, const std::function<void(World&)>& body);

}  // namespace gantry
