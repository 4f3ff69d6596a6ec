// Ranks that are processes of one host and have one device in common: every layout on a single GPU, without NCCL.
//
// It stands on the MPI backend, which starts the ranks, carries tensors of the host and what ranks tell each other of
// tensors on the device (device_sharing.h), and moves all operations: who waits for any of them moves these too, with
// its deadlines and words. The host waits in a Work's wait() until all have called the operation, and the device's
// current stream then comes after it. Sums go by rank on the device, with the bits of the other backends.
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
  // Collective over the host's ranks. Both must outlive it. ResourceError, on every rank, where ranks are on several
  // hosts or have different devices, or where one can't open what another one exports.
  SharedDeviceBackend(ProcessBackend& base, DeviceSharing& sharing);
  ~SharedDeviceBackend() override;

  const char* name() const override { return "ipc"; }
  int rank() const override { return base_.rank(); }
  int size() const override { return base_.size(); }
  torch::Device device() const override;
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override { base_.abort(reason); }
  bool has_ended(int rank) const override { return base_.has_ended(rank); }

  // Collective, when a rank's work has ended well: no process goes while another one reads its memory.
  void close();

 private:
  ProcessBackend& base_;
  std::shared_ptr<SharedDeviceJob> job_;
  std::unique_ptr<ProcessGroup> everyone_;
};

// A rank's part of the launch on `host`, whose backend is mpi: `body` in a world on the device.
void run_on_shared_device(World& host, DeviceSharing& sharing, const std::function<void(World&)>& body);

}  // namespace gantry
