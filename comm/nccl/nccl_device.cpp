#include "gantry/comm/nccl/nccl_device.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "gantry/comm/world.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr int kFirstVersionThatShares = 23000;
constexpr const char* kSharingVariable = "NCCL_MULTI_RANK_GPU_ENABLE";

using Devices = std::vector<std::string>;

bool share_any(const Devices& one, const Devices& other) {
  return std::any_of(one.begin(), one.end(), [&](const std::string& device) {
    return std::find(other.begin(), other.end(), device) != other.end();
  });
}

// Returns the ranks whose choice of device depends on this one: they see a device that this rank sees, or
// share one with such a rank, and so on.
std::vector<int> find_sharers(const DeviceQuestion& question) {
  std::vector<bool> found(question.visible.size(), false);
  std::vector<int> open{question.rank};
  found[question.rank] = true;
  while (!open.empty()) {
    const Devices& devices = question.visible[open.back()];
    open.pop_back();
    for (std::size_t rank = 0; rank < found.size(); ++rank)
      if (!found[rank] && share_any(devices, question.visible[rank])) {
        found[rank] = true;
        open.push_back(static_cast<int>(rank));
      }
  }
  std::vector<int> sharers;
  for (std::size_t rank = 0; rank < found.size(); ++rank)
    if (found[rank]) sharers.push_back(static_cast<int>(rank));
  return sharers;
}

// Assigns one device to each rank, lower ranks first. If a rank finds none free, other ranks move to another
// of their devices.
class Division {
 public:
  explicit Division(const std::vector<Devices>& visible) : visible_(visible) {}

  bool place(int rank) {
    tried_.clear();
    return place_or_move(rank);
  }
  const std::string* device_of(int rank) const {
    for (const auto& [device, owner] : owners_)
      if (owner == rank) return &device;
    return nullptr;
  }

 private:
  bool place_or_move(int rank) {
    for (const auto& device : visible_[rank])
      if (owners_.try_emplace(device, rank).second) return true;
    for (const auto& device : visible_[rank]) {
      if (!tried_.insert(device).second) continue;
      if (!place_or_move(owners_.at(device))) continue;
      owners_[device] = rank;
      return true;
    }
    return false;
  }

  const std::vector<Devices>& visible_;
  std::map<std::string, int> owners_;
  std::set<std::string> tried_;
};

// More attempts per pool than any pool has streams, even if other code takes some meanwhile.
constexpr int kAttempts = 256;  // per pool

using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

// Streams in use, of all ranks of this process; guarded by its mutex. Never destroyed, because communicators
// may end after static destructors.
struct Lent {
  std::mutex mutex;
  std::set<StreamKey> streams;
};

Lent& lent() {
  static auto* all = new Lent;
  return *all;
}

StreamKey key_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

c10::Stream borrow(const NcclDevice& device) {
  Lent& all = lent();
  const std::lock_guard lock(all.mutex);
  for (int priority = NcclDevice::kHighestPriority; priority < 0; ++priority)
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const c10::Stream stream = device.pooled_stream(priority);
      if (all.streams.insert(key_of(stream)).second) return stream;
    }
  const auto of_device = std::count_if(all.streams.begin(), all.streams.end(),
                                       [&](const StreamKey& one) { return one.first == device.device().index(); });
  throw ResourceError(
      {"nccl",
       fmt::format("{} communicators of this process already use all streams of {}", of_device, device.device().str()),
       "one stream for each communicator, so that none waits for another",
       "destroy unused groups and plugins before you create new ones"});
}

}  // namespace

bool NcclDevice::holds(const torch::Tensor& tensor, const char* call) const {
  const torch::Device at = tensor.device();
  if (at.type() != device_.type()) return false;
  if (at.has_index() && device_.has_index() && at.index() != device_.index())
    throw UsageError({call, "the tensor is on " + at.str(), "a tensor on " + device_.str() + ", this rank's device",
                      "move it there, or to the CPU"});
  return true;
}

void NcclDevice::record_use(const torch::Tensor& tensor, const c10::Stream& stream) const {
  if (tensor.nbytes() > 0) guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

NcclStream::NcclStream(const NcclDevice& device) : stream_(borrow(device)) {}

NcclStream::~NcclStream() {
  Lent& all = lent();
  const std::lock_guard lock(all.mutex);
  all.streams.erase(key_of(stream_));
}

int choose_device_index(const DeviceQuestion& question) {
  const Devices& mine = question.visible[question.rank];
  if (mine.empty())
    throw ResourceError(
        {"comm.backend", "nccl cannot be used, because this process sees no CUDA device", "one device per rank",
         "check CUDA_VISIBLE_DEVICES and whether Gantry was built with a LibTorch for CUDA, or use mpi or local"});
  const std::vector<int> sharers = find_sharers(question);
  Division division(question.visible);
  std::set<std::string> devices;
  bool all_placed = true;
  for (const int rank : sharers) {
    all_placed = division.place(rank) && all_placed;
    devices.insert(question.visible[rank].begin(), question.visible[rank].end());
  }
  if (all_placed)
    return static_cast<int>(std::find(mine.begin(), mine.end(), *division.device_of(question.rank)) - mine.begin());
  const std::string what = fmt::format("nccl has {} ranks on this host, but {} CUDA device{}", sharers.size(),
                                       devices.size(), devices.size() == 1 ? "" : "s");
  if (question.threads)
    throw ResourceError({"comm.backend", what, "one device per rank if ranks are threads",
                         fmt::format("use at most {} ranks, or start them with mpirun", devices.size())});
  if (question.nccl_version < kFirstVersionThatShares || !question.sharing_asked)
    throw ResourceError(
        {"comm.backend",
         fmt::format("{} (NCCL {}.{}, {} is {})", what, question.nccl_version / 10000,
                     question.nccl_version / 100 % 100, kSharingVariable, question.sharing_asked ? "1" : "not 1"),
         fmt::format("one device per rank, or NCCL 2.30 or newer and {}=1", kSharingVariable),
         fmt::format("use at most {} ranks, each with its own device, or comm.backend: ipc", devices.size())});
  const auto place = std::find(sharers.begin(), sharers.end(), question.rank) - sharers.begin();
  return static_cast<int>(place % static_cast<std::ptrdiff_t>(mine.size()));
}

DeviceQuestion ask_for_device(Backend& base, const std::vector<std::string>& uuids) {
  constexpr std::int64_t kUuidBytes = 16;
  std::vector<int> everyone(base.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = base.make_group("devices", everyone);
  const Sizes counts = all_gather_numbers(*group, static_cast<std::int64_t>(uuids.size()));
  torch::Tensor mine = torch::zeros({static_cast<std::int64_t>(uuids.size()), kUuidBytes}, torch::kUInt8);
  for (std::size_t i = 0; i < uuids.size(); ++i)
    std::copy_n(uuids[i].data(), std::min<std::size_t>(kUuidBytes, uuids[i].size()),
                mine.data_ptr<std::uint8_t>() + static_cast<std::int64_t>(i) * kUuidBytes);
  torch::Tensor all =
      torch::zeros({std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), kUuidBytes}, torch::kUInt8);
  group->all_gather(all, mine, counts).wait();
  const char* sharing = std::getenv(kSharingVariable);
  DeviceQuestion question;
  question.rank = base.rank();
  const auto* bytes = reinterpret_cast<const char*>(all.data_ptr());
  for (const std::int64_t count : counts) {
    Devices& devices = question.visible.emplace_back();
    for (std::int64_t i = 0; i < count; ++i, bytes += kUuidBytes) devices.emplace_back(bytes, kUuidBytes);
  }
  question.threads = base.name() == std::string("local");
  question.sharing_asked = sharing && sharing == std::string("1");
  return question;
}

}  // namespace gantry
