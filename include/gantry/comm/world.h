// One rank's view of the job: who it is, the mesh, and the backend that makes process groups.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/config.h"
#include "gantry/core/mesh.h"

namespace gantry {

// How an operation ends on a device, where a Work's wait() has only put streams in order. Holds no tensors.
class DeviceEnd {
 public:
  virtual ~DeviceEnd() = default;
  // Calls `then` once, on any thread and maybe before this returns: with true when the device has done the operation,
  // with false when it was aborted. `then` must return soon.
  virtual void when_ended(std::function<void(bool done)> then) = 0;
};

// One rank's endpoint of a backend (local, mpi, nccl, ipc). A folder each under comm/.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Collective over `ranks` (ascending world ranks, this one among them); every member makes its groups in the same
  // order. `label` names the group in messages ("tp").
  virtual std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) = 0;
  // Spreads a failure to all ranks of the job. Never blocks.
  virtual void abort(const std::string& reason) = 0;
  // True once it is known that the rank's work has ended and what it sent has come: a wait for it is in vain. Called
  // from any thread.
  virtual bool has_ended(int rank) const = 0;
  // Where its ranks keep their models and compute: a device of their own, or the CPU.
  virtual torch::Device device() const { return torch::kCPU; }
  // What this thread's last wait() for one of the backend's operations has left to the device; null where the host
  // itself has waited. Given once.
  virtual std::shared_ptr<DeviceEnd> take_end() const { return nullptr; }
};

class World {
 public:
  World(Backend& backend, Config config, Mesh mesh)
      : backend_(backend), config_(std::move(config)), mesh_(std::move(mesh)) {}

  int rank() const { return backend_.rank(); }
  int size() const { return backend_.size(); }
  bool is_main() const { return rank() == 0; }
  const Config& config() const { return config_; }
  const Mesh& mesh() const { return mesh_; }
  Backend& backend() { return backend_; }
  torch::Device device() const { return backend_.device(); }
  std::string describe() const { return mesh_.describe_rank(rank()); }

 private:
  Backend& backend_;
  Config config_;
  Mesh mesh_;
};

}  // namespace gantry
