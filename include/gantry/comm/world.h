// One rank's view of the job: its rank, the mesh, and the backend that creates process groups.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gantry/comm/process_group.h"
#include "gantry/core/config.h"
#include "gantry/core/mesh.h"

namespace gantry {

// The end of an operation on a device, for which wait() of a Work has only ordered streams. Holds no tensors.
class DeviceEnd {
 public:
  virtual ~DeviceEnd() = default;
  // Calls `then` once, on any thread, possibly before this function returns. The argument is true if the device has
  // completed the operation, and false if it was aborted. `then` must return soon.
  virtual void when_ended(std::function<void(bool done)> then) = 0;
};

// One rank's endpoint of a backend (local, mpi, nccl, ipc). comm/ has one directory per backend.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Creates the group of `ranks` (ascending world ranks, including this one). Collective over `ranks`. Every member
  // must create its groups in the same order. `label`: the name of the group in messages ("tp").
  virtual std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) = 0;
  // Notifies all ranks of the job of a failure. Does not wait for other ranks; see ProcessGroup::abort().
  virtual void abort(const std::string& reason) = 0;
  // True if the rank is known to have ended and its messages have arrived, so that waiting for it is useless. May be
  // called from any thread.
  virtual bool has_ended(int rank) const = 0;
  // The device of this rank's model and computation: a GPU of its own, or the CPU.
  virtual torch::Device device() const { return torch::kCPU; }
  // Returns, once, the end of the operation that this thread last waited for. Null if the host itself has waited.
  virtual std::shared_ptr<DeviceEnd> take_end() const { return nullptr; }
};

// The job as one rank sees it; the argument of the body of launch(). The backend is not owned.
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
