#include "gantry/comm/shared_device/shared_device_backend.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/shared_device/device_collective.h"
#include "gantry/comm/shared_device/device_messages.h"
#include "gantry/comm/shared_device/device_work.h"
#include "gantry/comm/shared_device/shared_device_job.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

class SharedDeviceGroup final : public ProcessGroup {
 public:
  // `base` has the same members, and carries tensors in host memory.
  SharedDeviceGroup(std::shared_ptr<SharedDeviceJob> job, std::unique_ptr<ProcessGroup> base,
                    std::shared_ptr<GroupChannel> channel)
      : job_(std::move(job)), base_(std::move(base)), channel_(std::move(channel)), messages_(job_, channel_) {}

  int rank() const override { return base_->rank(); }
  int size() const override { return base_->size(); }
  void abort(const std::string& reason) override { base_->abort(reason); }

  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "send");
    messages_.send(tensor, to, tag, /*owned_by_receiver=*/false);
    return {};
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "hand_over");
    messages_.send(tensor, to, tag, /*owned_by_receiver=*/true);
    return {};
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    check_rank(from, size(), "recv");
    return messages_.recv(spec, from, tag);
  }

  Work start(const Collective& call) override {
    call.check(rank(), size());
    // A barrier only concerns the hosts, because work on the devices is ordered by streams.
    if (!call.target || !on_device(call)) return base_->start(call);
    channel_->engine()->failures().throw_if_failed();
    if (size() == 1) {
      const torch::NoGradGuard no_grad;
      if (call.in) call.target->copy_(*call.in);
      return {};
    }
    const c10::Stream stream = job_->current_stream();  // may differ from that of the tensors' memory
    job_->record_use(call.target->storage(), stream);
    if (call.in) job_->record_use(call.in->storage(), stream);
    auto collective = std::make_shared<DeviceCollective>(job_, channel_);
    collective->begin(call, collectives_++);
    channel_->engine()->post(collective);
    return Work(std::make_shared<DeviceWork<DeviceCollective>>(std::move(collective)));
  }

 private:
  // Returns false if all tensors of the call are on the host. Throws UsageError if some are on each.
  bool on_device(const Collective& call) const {
    const char* name = name_of(call.kind);
    const bool device = job_->holds(call.target->device(), name);
    if (call.in && job_->holds(call.in->device(), name) != device)
      throw UsageError(
          {name, fmt::format("the tensors are on {} and {}", call.target->device().str(), call.in->device().str()),
           "tensors on the same device", "move one of them"});
    return device;
  }

  const std::shared_ptr<SharedDeviceJob> job_;
  const std::unique_ptr<ProcessGroup> base_;
  const std::shared_ptr<GroupChannel> channel_;
  DeviceMessages messages_;
  std::uint64_t collectives_ = 0;
};

constexpr std::int64_t kUuidRoom = 64;

// The error names the first rank that differs from rank 0, so all ranks report the same.
void check_one_host(ProcessEngine& engine) {
  for (int rank = 1; rank < engine.size(); ++rank)
    if (engine.hosts().host_of(rank) != engine.hosts().host_of(0))
      throw ResourceError({"comm.backend",
                           fmt::format("ipc cannot be used, because {} is on another host than {}",
                                       engine.describe_rank(rank), engine.describe_rank(0)),
                           "all ranks on one host, because they share its device",
                           "start them on one host, or use nccl with one device per rank"});
}

void check_one_device(const ProcessEngine& engine, ProcessGroup& everyone, const std::string& uuid) {
  const Sizes sizes(static_cast<std::size_t>(everyone.size()), 1);
  torch::Tensor mine = torch::zeros({1, kUuidRoom}, torch::kUInt8);
  std::copy(uuid.begin(), uuid.end(), mine.data_ptr<std::uint8_t>());
  torch::Tensor all = torch::zeros({everyone.size(), kUuidRoom}, torch::kUInt8);
  everyone.all_gather(all, mine, sizes).wait();
  const auto uuid_of = [&](int rank) {
    return std::string(reinterpret_cast<const char*>(all.data_ptr<std::uint8_t>() + rank * kUuidRoom));
  };
  for (int rank = 1; rank < everyone.size(); ++rank)
    if (uuid_of(rank) != uuid_of(0))
      throw ResourceError({"comm.backend",
                           fmt::format("ipc cannot be used, because {} has the device {}, but {} has {}",
                                       engine.describe_rank(rank), uuid_of(rank), engine.describe_rank(0), uuid_of(0)),
                           "one device for all ranks",
                           "set CUDA_VISIBLE_DEVICES so that every rank sees the same device first, or use nccl"});
}

}  // namespace

SharedDeviceBackend::SharedDeviceBackend(ProcessBackend& base, DeviceSharing& sharing)
    : base_(base), job_(std::make_shared<SharedDeviceJob>(base.engine(), sharing)) {
  check_one_host(*base_.engine());
  std::vector<int> all(size());
  std::iota(all.begin(), all.end(), 0);
  everyone_ = make_group("device", all);
  check_one_device(*base_.engine(), *everyone_, sharing.uuid());
  // Each rank reads from each other one, so that the error occurs before any computation if one of them
  // cannot.
  torch::Tensor tried = torch::ones({size()}, torch::dtype(torch::kFloat32).device(device()));
  everyone_->all_reduce(tried).wait();
}

SharedDeviceBackend::~SharedDeviceBackend() = default;

torch::Device SharedDeviceBackend::device() const { return job_->device(); }

std::unique_ptr<ProcessGroup> SharedDeviceBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  auto base = base_.make_group(label, ranks);
  return std::make_unique<SharedDeviceGroup>(job_, std::move(base),
                                             std::make_shared<GroupChannel>(base_.engine(), label, ranks));
}

void SharedDeviceBackend::close() {
  job_->await_sends();
  everyone_->barrier().wait();  // all ranks have issued their work to the device
  job_->let_go();
  everyone_->barrier().wait();  // and their work is complete
}

void run_on_shared_device(World& host, DeviceSharing& sharing, const std::function<void(World&)>& body) {
  auto* base = dynamic_cast<ProcessBackend*>(&host.backend());
  if (!base) throw InternalError({"launch", "ranks that share a device were not started with MPI", "", ""});
  const c10::DeviceGuard on_device(sharing.device());
  SharedDeviceBackend backend(*base, sharing);
  World world(backend, host.config(), host.mesh());
  body(world);
  backend.close();
}

}  // namespace gantry
