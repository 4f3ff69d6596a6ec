#include "gantry/comm/nccl/nccl_device.h"

#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <unistd.h>

#include "gantry/comm/world.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr int kFirstVersionThatShares = 23000;
constexpr const char* kSharingVariable = "NCCL_MULTI_RANK_GPU_ENABLE";

// A number for this host and the devices that this process may use of it.
std::int64_t host_and_devices() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return static_cast<std::int64_t>(std::hash<std::string>()(std::string(name) + '\n' + (visible ? visible : "all")));
}

}  // namespace

bool NcclDevice::holds(const torch::Tensor& tensor, const char* call) const {
  const torch::Device at = tensor.device();
  if (at.type() != device_.type()) return false;
  if (at.has_index() && device_.has_index() && at.index() != device_.index())
    throw UsageError({call, "of a tensor on " + at.str(), "one on " + device_.str() + ", this rank's device",
                      "move it there, or to the CPU"});
  return true;
}

void NcclDevice::record_use(const torch::Tensor& tensor, const c10::Stream& stream) const {
  if (tensor.nbytes() > 0) guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

int choose_device_index(const DeviceQuestion& question) {
  if (question.devices == 0)
    throw ResourceError(
        {"comm.backend", "nccl, and this process sees no CUDA device", "one a rank",
         "look at CUDA_VISIBLE_DEVICES and the LibTorch that Gantry was built with, or use mpi or local"});
  if (question.sharers <= question.devices) return question.place;
  const std::string what = fmt::format("nccl, {} ranks on this host and {} CUDA device{}", question.sharers,
                                       question.devices, question.devices == 1 ? "" : "s");
  if (question.threads)
    throw ResourceError({"comm.backend", what, "a device a rank where ranks are threads",
                         fmt::format("use at most {} of them, or start them by mpirun", question.devices)});
  if (question.nccl_version < kFirstVersionThatShares || !question.sharing_asked)
    throw ResourceError(
        {"comm.backend",
         fmt::format("{}, NCCL {}.{}, {} {}", what, question.nccl_version / 10000, question.nccl_version / 100 % 100,
                     kSharingVariable, question.sharing_asked ? "1" : "not 1"),
         fmt::format("a device a rank, or NCCL 2.30 or newer and {}=1", kSharingVariable),
         fmt::format("use at most {} of them", question.devices)});
  return question.place % question.devices;
}

DeviceQuestion ask_for_device(Backend& host) {
  std::vector<int> everyone(host.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = host.make_group("devices", everyone);
  const auto places = all_gather_numbers(*group, host_and_devices());
  const char* sharing = std::getenv(kSharingVariable);
  DeviceQuestion question;
  question.sharers = static_cast<int>(std::count(places.begin(), places.end(), places[host.rank()]));
  question.place = static_cast<int>(std::count(places.begin(), places.begin() + host.rank(), places[host.rank()]));
  question.threads = host.name() == std::string("local");
  question.sharing_asked = sharing && sharing == std::string("1");
  return question;
}

}  // namespace gantry
