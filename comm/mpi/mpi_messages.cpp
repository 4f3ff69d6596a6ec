#include "gantry/comm/mpi/mpi_messages.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <torch/torch.h>

#include "gantry/comm/mpi/buffer_pool.h"
#include "gantry/core/error.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

constexpr int kMostDims = 12;
constexpr std::int64_t kMostInlineBytes = 3968;  // with the head below Open MPI's eager limit of 4096 on one host

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

class MpiSend final : public MpiOperation {
 public:
  MpiSend(std::shared_ptr<MpiChannel> channel, const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag,
          int payload_tag)
      : MpiOperation(channel->engine()),
        channel_(std::move(channel)),
        to_(to),
        tag_(tag),
        wire_tag_(channel_->tags().encode(tag)) {
    Head head;
    if (tensor.defined()) {
      if (tensor.dim() > kMostDims)
        throw UsageError(
            {"send", fmt::format("a tensor of {} dims", tensor.dim()), fmt::format("at most {}", kMostDims), ""});
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

  std::shared_ptr<MpiChannel> channel_;
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

class MpiReceive final : public MpiOperation {
 public:
  MpiReceive(std::shared_ptr<MpiChannel> channel, const TensorSpec& spec, int from, const Tag& tag)
      : MpiOperation(channel->engine()),
        channel_(std::move(channel)),
        dtype_(spec.dtype),
        shape_(spec.shape.begin(), spec.shape.end()),
        from_(from),
        tag_(tag),
        wire_tag_(channel_->tags().encode(tag)) {}

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
  std::string describe_pending(const std::vector<int>&) override {
    return fmt::format("{} from {}", describe(tag_), channel_->describe_member(from_));
  }
  std::vector<int> awaited_ranks(const std::vector<int>&) override { return channel_->world_ranks({from_}); }
  std::string describe_mismatch(int, std::int64_t expected, std::int64_t received) override {
    return fmt::format("received {} bytes of {} from {}; {} bytes, as its head said", received, describe(tag_),
                       channel_->describe_member(from_), expected);
  }

 private:
  // True when there is nothing more to come.
  bool read_head() {
    Head head;
    std::memcpy(&head, first_, sizeof(Head));
    if (head.dtype == Head::kAbsent) return true;
    const bool same = head.dtype == static_cast<std::int32_t>(dtype_) &&
                      head.dims == static_cast<std::int32_t>(shape_.size()) &&
                      std::equal(shape_.begin(), shape_.end(), head.shape);
    if (!same) {
      throw PeerError({channel_->describe_member(channel_->rank()),
                       fmt::format("received {} from {} as {}", describe(tag_), channel_->describe_member(from_),
                                   describe_head(head)),
                       fmt::format("{} [{}]", dtype_name(dtype_), fmt::join(shape_, ", ")),
                       "make both sides agree on the shape"});
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

  std::shared_ptr<MpiChannel> channel_;
  const torch::ScalarType dtype_;
  const c10::DimVector shape_;
  const int from_;
  const Tag tag_;
  const int wire_tag_;
  int step_ = 0;
  torch::Tensor tensor_;
  char first_[sizeof(Head) + kMostInlineBytes];
};

}  // namespace

std::shared_ptr<MpiOperation> make_send(const std::shared_ptr<BlockPool>& pool, std::shared_ptr<MpiChannel> channel,
                                        const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag,
                                        std::uint64_t payload) {
  const int payload_tag = channel->data_tags().payload(payload);
  return make_pooled<MpiSend>(pool, std::move(channel), tensor, memory, to, tag, payload_tag);
}

std::shared_ptr<MpiOperation> make_receive(const std::shared_ptr<BlockPool>& pool, std::shared_ptr<MpiChannel> channel,
                                           const TensorSpec& spec, int from, const Tag& tag) {
  return make_pooled<MpiReceive>(pool, std::move(channel), spec, from, tag);
}

}  // namespace gantry
