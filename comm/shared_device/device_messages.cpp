#include "gantry/comm/shared_device/device_messages.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include "gantry/comm/processes/message_receive.h"
#include "gantry/comm/shared_device/device_work.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr int kMostDeviceDims = 12;

enum class Carried : std::int32_t { kAbsent, kHost, kDevice };

struct DeviceHead {
  Carried carried = Carried::kAbsent;
  std::int32_t dtype = 0, dims = 0;
  std::int32_t tag = 0;  // tag of the payload that follows, or of the answer
  std::int64_t shape[kMostDeviceDims] = {};
  SharedPlace place;
  SharedSignal ready;

  std::vector<std::int64_t> sizes() const { return {shape, shape + dims}; }
};

// If two members send to each other, payloads and answers use the same direction, so they have even and odd
// numbers.
int payload_number(const GroupChannel& channel, std::uint64_t sent) { return channel.data_tags().payload(2 * sent); }
int answer_number(const GroupChannel& channel, std::uint64_t sent) { return channel.data_tags().payload(2 * sent + 1); }

class DeviceSend final : public ProcessOperation {
 public:
  // `packed`: contiguous, and used only by this operation; undefined for an absent tensor.
  DeviceSend(std::shared_ptr<SharedDeviceJob> job, std::shared_ptr<GroupChannel> channel, const torch::Tensor& packed,
             int to, const Tag& tag, std::uint64_t number)
      : ProcessOperation(channel->engine()),
        job_(std::move(job)),
        channel_(std::move(channel)),
        to_(to),
        tag_(tag),
        wire_tag_(channel_->tags().encode(tag)),
        stream_(job_->current_stream()) {
    if (!packed.defined()) return;
    storage_ = packed.storage();
    data_ = static_cast<const char*>(packed.const_data_ptr());
    bytes_ = static_cast<std::int64_t>(packed.nbytes());
    head_.carried = packed.is_cpu() ? Carried::kHost : Carried::kDevice;
    head_.dtype = static_cast<std::int32_t>(packed.scalar_type());
    head_.dims = static_cast<std::int32_t>(packed.dim());
    head_.tag = packed.is_cpu() ? payload_number(*channel_, number) : answer_number(*channel_, number);
    std::copy(packed.sizes().begin(), packed.sizes().end(), head_.shape);
    if (!packed.is_cpu()) job_->record_use(storage_, stream_);
  }

 protected:
  bool advance() override {
    switch (step_++) {
      case 0:
        post_head();
        return false;
      case 1:
        if (head_.carried == Carried::kDevice && bytes_ > 0)
          job_->follow(stream_, channel_->world_ranks({to_}).front(), answer_);
        [[fallthrough]];
      default:
        storage_ = {};
        return true;
    }
  }
  std::string describe_pending(const std::vector<int>&) override {
    return fmt::format("{} to take {}", channel_->describe_member(to_), describe(tag_));
  }
  std::vector<int> awaited_ranks(const std::vector<int>&) override { return channel_->world_ranks({to_}); }
  std::string describe_mismatch(int, std::int64_t, std::int64_t) override { return "an answer can't differ"; }

 private:
  void post_head() {
    const bool on_device = head_.carried == Carried::kDevice;
    if (on_device) {
      head_.place = job_->find_place(data_);
      head_.ready = job_->signal(stream_);
      if (bytes_ > 0) engine().receive(*this, &answer_, sizeof(answer_), to_, head_.tag, channel_->data());
    }
    engine().send(*this, &head_, sizeof(head_), to_, wire_tag_, channel_->heads());
    if (!on_device && bytes_ > 0) engine().send(*this, data_, bytes_, to_, head_.tag, channel_->data());
  }

  const std::shared_ptr<SharedDeviceJob> job_;
  const std::shared_ptr<GroupChannel> channel_;
  const int to_;
  const Tag tag_;
  const int wire_tag_;
  const c10::Stream stream_;
  c10::Storage storage_;
  const char* data_ = nullptr;
  std::int64_t bytes_ = 0;
  DeviceHead head_;
  SharedSignal answer_;
  int step_ = 0;
};

class DeviceReceive final : public MessageReceive {
 public:
  DeviceReceive(std::shared_ptr<SharedDeviceJob> job, std::shared_ptr<GroupChannel> channel, const TensorSpec& spec,
                int from, const Tag& tag)
      : MessageReceive(std::move(channel), from, tag),
        job_(std::move(job)),
        spec_(spec),
        stream_(job_->current_stream()),
        end_(job_->device().type()) {}

  torch::Tensor result() override { return tensor_; }
  bool passed() const { return !copied_ || end_.query(); }
  void precede_current() {
    const c10::Stream current = job_->current_stream();
    if (!copied_ || current == stream_ || tensor_.is_cpu()) return;
    end_.block(current);
    job_->record_use(tensor_.storage(), current);
  }

 protected:
  bool advance() override {
    const torch::NoGradGuard no_grad;
    switch (step_++) {
      case 0:
        engine().receive(*this, &head_, sizeof(head_), from_, wire_tag_, channel_->heads());
        return false;
      case 1:
        return read_head();
      default:
        return true;
    }
  }
  // Moves the tensor to the requested device if it arrived on another one.
  void finish() override {
    if (!tensor_.defined() || tensor_.device().type() == spec_.device.type()) return;
    precede_current();
    tensor_ = tensor_.to(spec_.device.is_cpu() ? torch::Device(torch::kCPU) : job_->device());
  }

 private:
  // Returns true if nothing follows.
  bool read_head() {
    if (head_.carried == Carried::kAbsent) return true;
    const auto dtype = static_cast<torch::ScalarType>(head_.dtype);
    if (dtype != spec_.dtype || head_.sizes() != spec_.shape)
      throw PeerError({channel_->describe_member(channel_->rank()),
                       fmt::format("{} from {} arrived as {} [{}]", describe(tag_), channel_->describe_member(from_),
                                   dtype_name(dtype), fmt::join(head_.sizes(), ", ")),
                       fmt::format("{} [{}]", dtype_name(spec_.dtype), fmt::join(spec_.shape, ", ")),
                       "use the same shape and type on both sides"});
    if (head_.carried == Carried::kDevice) {
      copy_on_device();
      return false;
    }
    tensor_ = torch::empty(spec_.shape, spec_.dtype);
    if (tensor_.nbytes() > 0)
      engine().receive(*this, tensor_.data_ptr(), static_cast<std::int64_t>(tensor_.nbytes()), from_, head_.tag,
                       channel_->data());
    return false;
  }
  void copy_on_device() {
    const c10::StreamGuard on_stream(stream_);
    tensor_ = torch::empty(spec_.shape, torch::dtype(spec_.dtype).device(job_->device()));
    if (tensor_.numel() == 0) return;
    const int sender = channel_->world_ranks({from_}).front();
    job_->follow(stream_, sender, head_.ready);
    tensor_.view({-1}).copy_(job_->at(job_->reach(sender, head_.place), tensor_.numel(), spec_.dtype));
    end_.record(stream_);
    copied_ = true;
    answer_ = job_->signal(stream_);
    engine().send(*this, &answer_, sizeof(answer_), from_, head_.tag, channel_->data());
  }

  const std::shared_ptr<SharedDeviceJob> job_;
  const TensorSpec spec_;
  const c10::Stream stream_;
  c10::Event end_;  // marks the end of the copy
  bool copied_ = false;
  DeviceHead head_;
  SharedSignal answer_;
  torch::Tensor tensor_;
  int step_ = 0;
};

}  // namespace

void DeviceMessages::send(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver) {
  const torch::NoGradGuard no_grad;
  torch::Tensor packed = tensor;
  if (tensor.defined()) {
    if (tensor.dim() > kMostDeviceDims)
      throw UsageError({"send", fmt::format("the tensor has {} dimensions", tensor.dim()),
                        fmt::format("at most {}", kMostDeviceDims), ""});
    job_->holds(tensor.device(), "send");
    packed = tensor.detach().contiguous();
    if (!owned_by_receiver && packed.is_alias_of(tensor)) packed = packed.clone();
  }
  auto send = std::make_shared<DeviceSend>(job_, channel_, packed, to, tag, sent_++);
  channel_->engine()->post(send);
  job_->keep(std::move(send));
}

Work DeviceMessages::recv(const TensorSpec& spec, int from, const Tag& tag) {
  job_->holds(spec.device, "recv");
  auto receive = std::make_shared<DeviceReceive>(job_, channel_, spec, from, tag);
  channel_->engine()->post(receive);
  return Work(std::make_shared<DeviceWork<DeviceReceive>>(std::move(receive)));
}

}  // namespace gantry
