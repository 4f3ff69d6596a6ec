// One rank's endpoint to a group of processes: its messages, and the choice of the method for a collective.
//
// A message begins with a head that describes the payload. So an unexpected shape or dtype is reported
// instead of misread, and an absent tensor differs from an empty one. A small payload is sent together with
// the head, a larger one on the data channel with a tag that is given in the head.
#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/comm/processes/group_channel.h"
#include "gantry/comm/processes/message_collective.h"
#include "gantry/comm/processes/message_receive.h"
#include "gantry/comm/processes/shared_collective.h"
#include "gantry/core/base/block_pool.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr int kMostDims = 12;
constexpr std::int64_t kMostInlineBytes = 3968;  // with the head: below Open MPI's eager limit of 4096

struct Head {
  static constexpr std::int32_t kAbsent = -1;
  std::int32_t dtype = kAbsent;
  std::int32_t dims = 0;
  std::int32_t payload_tag = 0;
  std::int32_t padding = 0;
  std::int64_t shape[kMostDims] = {};
};

std::int64_t payload_bytes(const torch::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

std::string describe_head(const Head& head) {
  if (head.dtype == Head::kAbsent) return "an absent tensor";
  return fmt::format("{} [{}]", dtype_name(static_cast<torch::ScalarType>(head.dtype)),
                     fmt::join(head.shape, head.shape + head.dims, ", "));
}

// Whether a send copies the caller's tensor, or owns it.
enum class SentMemory { kCopied, kGivenAway };

class MessageSend final : public ProcessOperation {
 public:
  MessageSend(std::shared_ptr<GroupChannel> channel, const torch::Tensor& tensor, SentMemory memory, int to,
              const Tag& tag, int payload_tag)
      : ProcessOperation(channel->engine()),
        channel_(std::move(channel)),
        to_(to),
        tag_(tag),
        wire_tag_(channel_->tags().encode(tag)) {
    Head head;
    if (tensor.defined()) {
      if (tensor.dim() > kMostDims)
        throw UsageError({"send", fmt::format("the tensor has {} dimensions", tensor.dim()),
                          fmt::format("at most {}", kMostDims), ""});
      const torch::NoGradGuard no_grad;
      const torch::Tensor packed = tensor.contiguous();
      storage_ = packed.storage();  // not the tensor: its owner may give it other data
      data_ = static_cast<const char*>(packed.const_data_ptr());
      bytes_ = payload_bytes(packed);
      if (memory == SentMemory::kCopied && bytes_ > kMostInlineBytes && packed.is_alias_of(tensor)) copy_data();
      head.dtype = static_cast<std::int32_t>(packed.scalar_type());
      head.dims = static_cast<std::int32_t>(packed.dim());
      head.payload_tag = payload_tag;
      std::copy(packed.sizes().begin(), packed.sizes().end(), head.shape);
    }
    const bool together = bytes_ <= kMostInlineBytes;
    first_bytes_ = static_cast<std::int64_t>(sizeof(Head)) + (together ? bytes_ : 0);
    std::memcpy(first_, &head, sizeof(Head));
    if (together && bytes_ > 0) std::memcpy(first_ + sizeof(Head), data_, static_cast<std::size_t>(bytes_));
    payload_tag_ = together ? -1 : payload_tag;
  }

 protected:
  bool advance() override {
    if (posted_) return true;
    posted_ = true;
    engine().send(*this, first_, first_bytes_, to_, wire_tag_, channel_->heads());
    if (payload_tag_ >= 0) engine().send(*this, data_, bytes_, to_, payload_tag_, channel_->data());
    return false;
  }
  std::string describe_pending(const std::vector<int>&) override {
    return fmt::format("{} to take {}", channel_->describe_member(to_), describe(tag_));
  }
  std::vector<int> awaited_ranks(const std::vector<int>&) override { return channel_->world_ranks({to_}); }
  std::string describe_mismatch(int, std::int64_t, std::int64_t) override { return "a send can't differ"; }

 private:
  void copy_data() {
    copy_ = BufferPool::instance().take(static_cast<std::size_t>(bytes_));
    std::memcpy(copy_.get(), data_, static_cast<std::size_t>(bytes_));
    data_ = copy_.get();
    storage_ = {};
  }

  std::shared_ptr<GroupChannel> channel_;
  const int to_;
  const Tag tag_;
  const int wire_tag_;
  c10::Storage storage_;
  PooledMemory copy_;
  const char* data_ = nullptr;
  std::int64_t bytes_ = 0;
  int payload_tag_ = -1;
  bool posted_ = false;
  std::int64_t first_bytes_ = 0;
  char first_[sizeof(Head) + kMostInlineBytes];  // head and small payload
};

class TensorReceive final : public MessageReceive {
 public:
  TensorReceive(std::shared_ptr<GroupChannel> channel, const TensorSpec& spec, int from, const Tag& tag)
      : MessageReceive(std::move(channel), from, tag),
        dtype_(spec.dtype),
        shape_(spec.shape.begin(), spec.shape.end()) {}

  torch::Tensor result() override { return tensor_; }

 protected:
  bool advance() override {
    switch (step_++) {
      case 0:
        engine().receive(*this, first_, sizeof(first_), from_, wire_tag_, channel_->heads(), /*exact=*/false);
        return false;
      case 1:
        return read_head();
      default:
        return true;
    }
  }

 private:
  // Returns true if no payload follows.
  bool read_head() {
    Head head;
    std::memcpy(&head, first_, sizeof(Head));
    if (head.dtype == Head::kAbsent) return true;
    const bool same = head.dtype == static_cast<std::int32_t>(dtype_) &&
                      head.dims == static_cast<std::int32_t>(shape_.size()) &&
                      std::equal(shape_.begin(), shape_.end(), head.shape);
    if (!same) {
      throw PeerError({channel_->describe_member(channel_->rank()),
                       fmt::format("{} from {} arrived as {}", describe(tag_), channel_->describe_member(from_),
                                   describe_head(head)),
                       fmt::format("{} [{}]", dtype_name(dtype_), fmt::join(shape_, ", ")),
                       "use the same shape and type on both sides"});
    }
    tensor_ = BufferPool::instance().tensor(shape_, dtype_);
    const std::int64_t bytes = payload_bytes(tensor_);
    if (bytes > kMostInlineBytes) {
      engine().receive(*this, tensor_.data_ptr(), bytes, from_, head.payload_tag, channel_->data());
      return false;
    }
    if (bytes > 0) std::memcpy(tensor_.data_ptr(), first_ + sizeof(Head), bytes);
    return true;
  }

  const torch::ScalarType dtype_;
  const c10::DimVector shape_;
  int step_ = 0;
  torch::Tensor tensor_;
  char first_[sizeof(Head) + kMostInlineBytes];
};

// Reused operations. Their number is the maximum that were in flight at once.
template <class Operation>
class OperationRing {
 public:
  // Returns an idle operation, or a new one. The search begins after the last one that was found.
  std::shared_ptr<Operation> idle_one(const std::shared_ptr<GroupChannel>& channel) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      last_ = (last_ + 1) % all_.size();
      if (all_[last_].use_count() > 1 || !all_[last_]->idle()) continue;
      std::atomic_thread_fence(std::memory_order_acquire);  // after the work of the last other holder
      return all_[last_];
    }
    return all_.emplace_back(std::make_shared<Operation>(channel));
  }

 private:
  std::vector<std::shared_ptr<Operation>> all_;
  std::size_t last_ = 0;  // index of the last idle one
};

class MessageGroup final : public ProcessGroup {
 public:
  explicit MessageGroup(std::shared_ptr<GroupChannel> channel) : channel_(std::move(channel)) {}

  int rank() const override { return channel_->rank(); }
  int size() const override { return channel_->size(); }
  void abort(const std::string& reason) override { engine().fail(PeerError::kExitCode, reason); }

  // Both complete at once, as on the local backend: a send never waits for its receiver. The sent data are
  // kept until they have left.
  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    return post_send(tensor, SentMemory::kCopied, to, tag);
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    return post_send(tensor, SentMemory::kGivenAway, to, tag);
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    check_rank(from, size(), "recv");
    check_on_cpu(spec.device, "recv", engine().transport().name());
    auto operation = make_pooled<TensorReceive>(receives_, channel_, spec, from, tag);
    engine().post(operation);
    return Work(std::move(operation));
  }
  Work start(const Collective& call) override {
    call.check(rank(), size());
    if (call.target) check_on_cpu(call.target->device(), name_of(call.kind), engine().transport().name());
    if (call.in) check_on_cpu(call.in->device(), name_of(call.kind), engine().transport().name());
    engine().failures().throw_if_failed();
    return shares_memory(call) ? begin(shared_, call) : begin(messages_, call);
  }

 private:
  ProcessEngine& engine() const { return *channel_->engine(); }

  Work post_send(const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag) {
    check_rank(to, size(), "send");
    if (tensor.defined()) check_on_cpu(tensor.device(), "send", engine().transport().name());
    const int payload_tag = channel_->data_tags().payload(payloads_++);
    engine().post(make_pooled<MessageSend>(sends_, channel_, tensor, memory, to, tag, payload_tag));
    return {};
  }

  // Over several hosts, only a large all_reduce uses shared memory. All other calls exchange messages between
  // all members.
  bool shares_memory(const Collective& call) const {
    if (!channel_->ring() || channel_->host_place().alone) return channel_->ring() != nullptr;
    return call.kind == OperationKind::kAllReduce &&
           static_cast<std::int64_t>(call.target->nbytes()) > engine().limits().direct_bytes;
  }

  template <class Operation>
  Work begin(OperationRing<Operation>& ring, const Collective& call) {
    std::shared_ptr<Operation> operation = ring.idle_one(channel_);
    operation->begin(call, collectives_++);
    engine().post(operation);
    return Work(std::move(operation));
  }

  std::shared_ptr<GroupChannel> channel_;
  std::uint64_t collectives_ = 0;
  std::uint64_t payloads_ = 0;
  OperationRing<SharedCollective> shared_;
  OperationRing<MessageCollective> messages_;
  // Each pool has blocks of one type of operation.
  std::shared_ptr<BlockPool> sends_ = std::make_shared<BlockPool>(), receives_ = std::make_shared<BlockPool>();
};

}  // namespace

std::unique_ptr<ProcessGroup> make_message_group(std::shared_ptr<GroupChannel> channel) {
  return std::make_unique<MessageGroup>(std::move(channel));
}

}  // namespace gantry
