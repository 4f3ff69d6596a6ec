#include "gantry/comm/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include <torch/torch.h>

#include "gantry/comm/reduce_kernels.h"
#include "gantry/core/error.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

ncclDataType_t type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return ncclFloat32;
    case torch::kFloat64:
      return ncclFloat64;
    case torch::kBFloat16:
      return ncclBfloat16;
    case torch::kFloat16:
      return ncclFloat16;
    case torch::kInt64:
      return ncclInt64;
    case torch::kInt32:
      return ncclInt32;
    default:
      return ncclUint8;  // others are refused by check_reducible()
  }
}

ncclRedOp_t operation_of(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin;
}

// Refuses types without a sum, in the words of the other backends, before any rank waits.
void check_reducible(torch::ScalarType type, ReduceOp op) { reduce_span(nullptr, nullptr, 1, 0, type, op); }

// What each member's rows are, in bytes.
struct Parts {
  std::vector<std::size_t> begin, bytes;
  bool even = true;

  Parts(const Sizes& sizes, const torch::Tensor& tensor) {
    const auto row = static_cast<std::size_t>(row_elements(tensor)) * tensor.element_size();
    std::size_t at = 0;
    for (const std::int64_t size : sizes) {
      begin.push_back(at);
      bytes.push_back(static_cast<std::size_t>(size) * row);
      at += bytes.back();
      even = even && size == sizes.front();
    }
  }
};

class CollectiveState final : public Work::State {
 public:
  // `target` gets `temporary`'s values at the end, where a non-contiguous tensor had to be worked on elsewhere.
  CollectiveState(std::shared_ptr<NcclJob> job, std::shared_ptr<NcclOperation> operation, torch::Tensor target,
                  torch::Tensor temporary)
      : job_(std::move(job)),
        operation_(std::move(operation)),
        target_(std::move(target)),
        temporary_(std::move(temporary)) {}

  bool done() override {
    job_->throw_if_failed();
    if (!ended_ && operation_->finished()) finish();
    return ended_;
  }
  void wait() override {
    job_->throw_if_failed();
    if (!ended_) return finish();
    order();  // another stream may have waited before
  }

 private:
  void order() {
    const c10::Stream current = job_->device().current_stream();
    operation_->precede(current);
    if (copied_) copied_->block(current);
    job_->throw_if_failed();
  }
  void finish() {
    order();
    ended_ = true;
    if (!temporary_.defined()) return;
    const NcclDevice& device = job_->device();
    const torch::NoGradGuard no_grad;
    target_.copy_(temporary_);
    // The copy may run after this has let go of the memory, on another stream than the memory's.
    device.record_use(temporary_, device.current_stream());
    temporary_.reset();
    copied_.emplace(device.new_event());
    copied_->record(device.current_stream());
  }

  const std::shared_ptr<NcclJob> job_;
  const std::shared_ptr<NcclOperation> operation_;
  torch::Tensor target_, temporary_;
  std::optional<c10::Event> copied_;  // behind the copy to a target that is not contiguous
  bool ended_ = false;
};

// "group 'tp' with rank 1 (...)", at most some of them.
std::string name_group(const NcclJob& job, const std::string& label, const std::vector<int>& ranks, int rank) {
  constexpr std::size_t kNamed = 8;
  std::vector<std::string> others;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (static_cast<int>(i) != rank) others.push_back(job.describe_rank(ranks[i]));
  const std::size_t left_out = others.size() > kNamed ? others.size() - kNamed : 0;
  others.resize(others.size() - left_out);
  return fmt::format("group '{}'{}{}{}", label, others.empty() ? "" : " with ", fmt::join(others, ", "),
                     left_out ? fmt::format(" and {} more", left_out) : "");
}

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<NcclJob> job, const std::string& label, const std::vector<int>& ranks)
    : job_(std::move(job)), base_(job_->base().make_group(label, ranks)) {
  name_ = name_group(*job_, label, ranks, base_->rank());
  if (size() > 1) {
    torch::Tensor id_bytes = torch::empty({static_cast<std::int64_t>(sizeof(ncclUniqueId))}, torch::kUInt8);
    ncclUniqueId id;
    if (rank() == 0) {
      id = new_unique_id();
      std::memcpy(id_bytes.data_ptr(), &id, sizeof(id));
    }
    base_->broadcast(id_bytes, 0).wait();
    std::memcpy(&id, id_bytes.data_ptr(), sizeof(id));
    communicator_ = std::make_unique<NcclCommunicator>(job_, NcclMembers{name_, ranks, rank()}, id);
  }
  messages_ = std::make_shared<NcclMessages>(job_, base_, label, ranks, job_->carries_messages(label));
}

bool NcclGroup::on_device(const torch::Tensor& target, const torch::Tensor& in, CollectiveKind kind) const {
  const char* call = collective_name(kind);
  const bool device = job_->device().holds(target, call);
  if (in.defined() && job_->device().holds(in, call) != device)
    throw UsageError({call, fmt::format("of tensors on {} and {}", target.device().str(), in.device().str()),
                      "both on one device", "move one"});
  return device;
}

Work NcclGroup::post(CollectiveKind kind, torch::Tensor& target, const torch::Tensor& in, const Calls& calls) {
  RECORD_FUNCTION(collective_label(kind), (std::vector<c10::IValue>{in.defined() ? in : target}));
  job_->throw_if_failed();
  const torch::NoGradGuard no_grad;
  if (!communicator_) {
    if (in.defined()) target.copy_(in);
    return {};
  }
  if (target.numel() == 0 && (!in.defined() || in.numel() == 0)) return {};
  torch::Tensor temporary;
  if (!target.is_contiguous()) temporary = target.detach().contiguous();
  const torch::Tensor out = temporary.defined() ? temporary : target;
  const torch::Tensor source = in.defined() ? in.detach().contiguous() : in;
  std::vector<c10::Storage> held{out.storage()};
  if (source.defined()) held.push_back(source.storage());
  auto what = [this_call = collectives_++, kind, name = name_, text = describe(in.defined() ? in : target)] {
    return fmt::format("{} of {}, number {} of {}", collective_name(kind), text, this_call, name);
  };
  auto operation =
      communicator_->issue(std::move(held), std::move(what), [&](ncclComm_t communicator, cudaStream_t stream) {
        return calls(static_cast<char*>(out.data_ptr()),
                     source.defined() ? static_cast<const char*>(source.const_data_ptr()) : nullptr, communicator,
                     stream);
      });
  return Work(std::make_shared<CollectiveState>(job_, std::move(operation), target, temporary));
}

Work NcclGroup::send(const torch::Tensor& tensor, int to, const Tag& tag) {
  check_rank(to, size(), "send");
  return messages_->send(tensor, to, tag, /*given_away=*/false);
}

Work NcclGroup::hand_over(const torch::Tensor& tensor, int to, const Tag& tag) {
  check_rank(to, size(), "hand_over");
  return messages_->send(tensor, to, tag, /*given_away=*/true);
}

Work NcclGroup::recv(const TensorSpec& spec, int from, const Tag& tag) {
  check_rank(from, size(), "recv");
  return messages_->recv(spec, from, tag);
}

Work NcclGroup::all_reduce(torch::Tensor& tensor, ReduceOp op) {
  check_reducible(tensor.scalar_type(), op);
  if (!on_device(tensor, {}, CollectiveKind::kAllReduce)) return base_->all_reduce(tensor, op);
  return post(CollectiveKind::kAllReduce, tensor, {},
              [&](char* data, const char*, ncclComm_t communicator, cudaStream_t stream) {
                return ncclAllReduce(data, data, tensor.numel(), type_of(tensor.scalar_type()), operation_of(op),
                                     communicator, stream);
              });
}

// Even parts go by NCCL's own call, others by a broadcast from each rank in one group call.
Work NcclGroup::all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) {
  check_gather(out, in, sizes, rank(), size(), "all_gather");
  if (!on_device(out, in, CollectiveKind::kAllGather)) return base_->all_gather(out, in, sizes);
  const Parts parts(sizes, out);
  return post(CollectiveKind::kAllGather, out, in,
              [&](char* whole, const char* part, ncclComm_t communicator, cudaStream_t stream) {
                if (parts.even) return ncclAllGather(part, whole, parts.bytes[0], ncclUint8, communicator, stream);
                ncclResult_t code = ncclSuccess;
                for (int root = 0; root < size() && code == ncclSuccess; ++root)
                  if (parts.bytes[root] > 0)
                    code = ncclBroadcast(part, whole + parts.begin[root], parts.bytes[root], ncclUint8, root,
                                         communicator, stream);
                return code;
              });
}

// Even parts go by NCCL's own call, others by a reduction to each rank in one group call.
Work NcclGroup::reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) {
  check_gather(in, out, sizes, rank(), size(), "reduce_scatter");
  check_reducible(in.scalar_type(), op);
  if (!on_device(out, in, CollectiveKind::kReduceScatter)) return base_->reduce_scatter(out, in, sizes, op);
  const Parts parts(sizes, in);
  const std::size_t item = in.element_size();
  const ncclDataType_t type = type_of(in.scalar_type());
  return post(CollectiveKind::kReduceScatter, out, in,
              [&](char* part, const char* whole, ncclComm_t communicator, cudaStream_t stream) {
                if (parts.even)
                  return ncclReduceScatter(whole, part, parts.bytes[0] / item, type, operation_of(op), communicator,
                                           stream);
                ncclResult_t code = ncclSuccess;
                for (int root = 0; root < size() && code == ncclSuccess; ++root)
                  if (parts.bytes[root] > 0)
                    code = ncclReduce(whole + parts.begin[root], part, parts.bytes[root] / item, type, operation_of(op),
                                      root, communicator, stream);
                return code;
              });
}

Work NcclGroup::broadcast(torch::Tensor& tensor, int root) {
  check_rank(root, size(), "broadcast");
  if (!on_device(tensor, {}, CollectiveKind::kBroadcast)) return base_->broadcast(tensor, root);
  return post(CollectiveKind::kBroadcast, tensor, {},
              [&](char* data, const char*, ncclComm_t communicator, cudaStream_t stream) {
                return ncclBroadcast(data, data, tensor.nbytes(), ncclUint8, root, communicator, stream);
              });
}

Work NcclGroup::all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) {
  check_all_to_all(out, in, out_sizes, in_sizes, size());
  if (!on_device(out, in, CollectiveKind::kAllToAll)) return base_->all_to_all(out, in, out_sizes, in_sizes);
  const Parts received(out_sizes, out), sent(in_sizes, in);
  return post(CollectiveKind::kAllToAll, out, in,
              [&](char* to, const char* from, ncclComm_t communicator, cudaStream_t stream) {
                ncclResult_t code = ncclSuccess;
                for (int peer = 0; peer < size() && code == ncclSuccess; ++peer) {
                  if (sent.bytes[peer] > 0)
                    code = ncclSend(from + sent.begin[peer], sent.bytes[peer], ncclUint8, peer, communicator, stream);
                  if (code == ncclSuccess && received.bytes[peer] > 0)
                    code = ncclRecv(to + received.begin[peer], received.bytes[peer], ncclUint8, peer, communicator,
                                    stream);
                }
                return code;
              });
}

// Of the hosts: device work is ordered by streams.
Work NcclGroup::barrier() { return base_->barrier(); }

}  // namespace gantry
