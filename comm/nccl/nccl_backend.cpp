#include "gantry/comm/nccl/nccl_backend.h"

#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

#include "gantry/comm/device_sum.h"
#include "gantry/comm/nccl/nccl_calls.h"
#include "gantry/comm/nccl/nccl_communicator.h"
#include "gantry/comm/nccl/nccl_memory.h"
#include "gantry/comm/nccl/nccl_messages.h"
#include "gantry/comm/registered_memory.h"
#include "gantry/core/axis.h"
#include "gantry/core/error.h"
#include "gantry/core/shard_spec.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

class CollectiveState final : public Work::State {
 public:
  // At the end `temporary` is copied to `target`, if the call's tensor is not contiguous.
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
    // The copy may run after this object has released the memory, on another stream than the memory's own.
    device.record_use(temporary_, device.current_stream());
    temporary_.reset();
    copied_.emplace(device.new_event());
    copied_->record(device.current_stream());
  }

  const std::shared_ptr<NcclJob> job_;
  const std::shared_ptr<NcclOperation> operation_;
  torch::Tensor target_, temporary_;
  std::optional<c10::Event> copied_;  // marks the end of the copy to a target that is not contiguous
  bool ended_ = false;
};

// Returns "group 'tp' with rank 1 (...)"; long lists of ranks are shortened.
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

class NcclGroup final : public ProcessGroup, public RegistersMemory {
 public:
  // Collective over `ranks` (world ranks, ascending).
  NcclGroup(std::shared_ptr<NcclJob> job, const std::string& label, const std::vector<int>& ranks)
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
      communicator_ = std::make_shared<NcclCommunicator>(job_, NcclMembers{name_, ranks, rank()}, id);
    }
    messages_ = std::make_shared<NcclMessages>(job_, base_, label, ranks, job_->carries_messages(label));
  }

  int rank() const override { return base_->rank(); }
  int size() const override { return base_->size(); }
  void abort(const std::string& reason) override { job_->fail(reason); }

  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "send");
    return messages_->send(tensor, to, tag, /*owned_by_receiver=*/false);
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "hand_over");
    return messages_->send(tensor, to, tag, /*owned_by_receiver=*/true);
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    check_rank(from, size(), "recv");
    return messages_->recv(spec, from, tag);
  }

  Work start(const Collective& call) override {
    call.check(rank(), size());
    // A barrier only concerns the hosts, because work on the devices is ordered by streams.
    if (!call.target || !on_device(call)) return base_->start(call);
    job_->throw_if_failed();
    const torch::NoGradGuard no_grad;
    const torch::Tensor& target = *call.target;
    if (!communicator_) {
      if (call.in) target.copy_(*call.in);
      return {};
    }
    if (target.numel() == 0 && call.brought().numel() == 0) return {};
    torch::Tensor temporary;
    if (!target.is_contiguous()) temporary = target.detach().contiguous();
    const torch::Tensor out = temporary.defined() ? temporary : target;
    const torch::Tensor source = call.in ? call.in->detach().contiguous() : out;
    const Name what = [number = collectives_++, kind = call.kind, name = name_, text = describe(call.brought())] {
      return fmt::format("{} of {}, number {} of {}", name_of(kind), text, number, name);
    };
    const bool sums = call.op == ReduceOp::kSum &&
                      (call.kind == OperationKind::kAllReduce || call.kind == OperationKind::kReduceScatter);
    std::shared_ptr<NcclOperation> operation =
        sums && job_->sums_by_rank() ? sum_by_rank(call, out, source, what) : issue(call, out, source, {}, what);
    return Work(std::make_shared<CollectiveState>(job_, std::move(operation), target, temporary));
  }

  torch::Tensor registered_zeros(std::int64_t elements, const torch::TensorOptions& options) override {
    if (!communicator_ || !job_->registers_memory() || elements == 0) return {};
    if (options.device().type() != job_->device().device().type()) return {};
    return new_registered_zeros(communicator_, job_->device(), elements, options);
  }

 private:
  using Name = std::function<std::string()>;

  // Issues a call of NCCL on contiguous tensors. The storages of `more` are kept until it is done.
  std::shared_ptr<NcclOperation> issue(const Collective& call, const torch::Tensor& out, const torch::Tensor& source,
                                       const std::vector<torch::Tensor>& more, const Name& what,
                                       bool after_current = true) {
    std::vector<c10::Storage> held{out.storage(), source.storage()};
    for (const torch::Tensor& tensor : more) held.push_back(tensor.storage());
    return communicator_->issue(
        std::move(held), what,
        [&](ncclComm_t communicator, cudaStream_t stream) {
          return call_nccl(call, static_cast<char*>(out.data_ptr()), static_cast<const char*>(source.const_data_ptr()),
                           size(), communicator, stream);
        },
        after_current);
  }

  // An all_reduce or reduce_scatter whose result is bitwise identical to the other backends. Each rank
  // receives its slice of every rank's tensor and adds the slices in rank order; an all_reduce then gathers
  // the results. All steps run on the communicator's stream.
  std::shared_ptr<NcclOperation> sum_by_rank(const Collective& call, const torch::Tensor& out,
                                             const torch::Tensor& source, const Name& what) {
    const bool gathers = call.kind == OperationKind::kAllReduce;
    const torch::Tensor terms = source.view({-1}), sums = out.view({-1});
    const auto ranges = partition(gathers ? sums.numel() : 0, 1, size(), /*allow_empty=*/true);
    Sizes slices;
    for (int member = 0; member < size(); ++member)
      slices.push_back(gathers ? ranges[member].size() : (*call.sizes)[member] * row_elements(*call.in));
    const std::int64_t mine = slices[rank()];
    const torch::Tensor received = torch::empty({size() * mine}, out.options());
    const Sizes as_mine(size(), mine);
    issue(
        {.kind = OperationKind::kAllToAll, .target = &received, .in = &terms, .sizes = &slices, .out_sizes = &as_mine},
        received, terms, {}, what);
    torch::Tensor sum = gathers ? sums.narrow(0, ranges[rank()].begin, mine) : sums;
    {
      const c10::StreamGuard on_stream(communicator_->stream());
      reduce_by_rank(sum, received.view({size(), mine}).unbind(), ReduceOp::kSum);
    }
    // These follow the reduction on the stream, because it reads the received data.
    if (gathers)
      return issue({.kind = OperationKind::kAllGather, .target = &sums, .in = &sum, .sizes = &slices}, sums, sum,
                   {received}, what, /*after_current=*/false);
    return communicator_->issue(
        {out.storage(), received.storage()}, what, [](ncclComm_t, cudaStream_t) { return ncclSuccess; },
        /*after_current=*/false);
  }

  // Returns whether the call's tensors are on the device; false if all are on the host. Throws UsageError if
  // they differ.
  bool on_device(const Collective& call) const {
    const char* name = name_of(call.kind);
    const bool device = job_->device().holds(*call.target, name);
    if (call.in && job_->device().holds(*call.in, name) != device)
      throw UsageError(
          {name, fmt::format("the tensors are on {} and {}", call.target->device().str(), call.in->device().str()),
           "tensors on the same device", "move one of them"});
    return device;
  }

  const std::shared_ptr<NcclJob> job_;
  std::string name_;  // "group 'tp' with rank 1 (...), rank 2 (...)"
  std::shared_ptr<ProcessGroup> base_;
  std::shared_ptr<NcclCommunicator> communicator_;  // null in a group of one
  std::shared_ptr<NcclMessages> messages_;
  std::uint64_t collectives_ = 0;
};

}  // namespace

NcclBackend::NcclBackend(Backend& base, NcclOptions options)
    : base_(base), job_(std::make_shared<NcclJob>(base, std::move(options))) {}

NcclBackend::~NcclBackend() { job_->close(); }

torch::Device NcclBackend::device() const { return job_->device().device(); }

std::shared_ptr<DeviceEnd> NcclBackend::take_end() const { return take_last_preceding(); }

std::unique_ptr<ProcessGroup> NcclBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  job_->throw_if_failed();
  return std::make_unique<NcclGroup>(job_, label, ranks);
}

void NcclBackend::abort(const std::string& reason) { job_->fail(reason); }

bool neighbours_send(const std::string& label) { return label == axis::kPipeline || label == axis::kContext; }

int nccl_version() {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}

}  // namespace gantry
