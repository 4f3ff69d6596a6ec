#include "gantry/comm/nccl/nccl_backend.h"

#include <torch/torch.h>

#include "gantry/comm/nccl/nccl_group.h"

namespace gantry {

NcclBackend::NcclBackend(Backend& base, NcclOptions options)
    : base_(base), job_(std::make_shared<NcclJob>(base, std::move(options))) {}

NcclBackend::~NcclBackend() = default;

torch::Device NcclBackend::device() const { return job_->device().device(); }

std::shared_ptr<DeviceEnd> NcclBackend::take_end() const { return take_last_preceding(); }

std::unique_ptr<ProcessGroup> NcclBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  job_->throw_if_failed();
  return std::make_unique<NcclGroup>(job_, label, ranks);
}

void NcclBackend::abort(const std::string& reason) { job_->fail(reason); }

int nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}

}  // namespace gantry
