#include "gantry/comm/mpi/mpi_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "gantry/comm/group_calls.h"
#include "gantry/comm/mpi/mpi_messages.h"
#include "gantry/comm/reduce_kernels.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// What a collective is, works on and gives back.
struct Collective {
  CallCode code;
  std::string what;  // "all_reduce of float32 [4]"
  std::uint64_t sequence = 0;
  Plan plan;
  std::vector<c10::Storage> kept;   // not the tensors: their owners may give them other data
  torch::Tensor target, temporary;  // target gets temporary's values at the end, where it is not contiguous
};

class MpiCollective final : public MpiOperation {
 public:
  MpiCollective(std::shared_ptr<MpiChannel> channel, Collective call)
      : MpiOperation(channel->engine()),
        channel_(std::move(channel)),
        call_(std::move(call)),
        tag_(channel_->data_tags().collective(call_.sequence, call_.code.encode())) {}

 protected:
  bool advance() override {
    auto& phases = call_.plan.phases;
    if (next_ > 0) reduce(phases[next_ - 1]);
    if (next_ == phases.size()) {
      call_.plan = {};  // its scratch is someone else's now
      return true;
    }
    const Phase& phase = phases[next_++];
    for (const Transfer& part : phase.receives)
      engine().receive(*this, part.data, part.bytes, part.peer, tag_, channel_->data());
    for (const Transfer& part : phase.sends)
      engine().send(*this, part.data, part.bytes, part.peer, tag_, channel_->data());
    return false;
  }
  void finish() override {
    if (!call_.temporary.defined()) return;
    const torch::NoGradGuard no_grad;
    call_.target.copy_(call_.temporary);
    call_.temporary.reset();
  }
  std::string describe_pending(const std::vector<int>& missing) override {
    return fmt::format("{}, number {} of group '{}', which {}", call_.what, call_.sequence, channel_->label(),
                       missing.empty() ? "others have not taken their parts of"
                                       : channel_->describe_members(missing) + " has not joined");
  }
  std::string describe_mismatch(int peer, std::int64_t expected, std::int64_t received) override {
    const std::string sent = received < 0 ? fmt::format("more than {}", expected) : std::to_string(received);
    return fmt::format(
        "group '{}': called {} and got {} bytes from {} where {} belong; all members must make the same calls in the "
        "same order",
        channel_->label(), call_.what, sent, channel_->describe_member(peer), expected);
  }
  std::string find_mismatch(const std::vector<int>& missing) override {
    for (const int peer : missing)
      for (int code = 0; code < call_codes(); ++code) {
        if (code == call_.code.encode()) continue;
        int found = 0;
        MPI_Iprobe(peer, channel_->data_tags().collective(call_.sequence, code), channel_->data(), &found,
                   MPI_STATUS_IGNORE);
        if (found)
          return fmt::format(
              "group '{}': {} called {} while {} called {}; all members must make the same calls in the same order",
              channel_->label(), channel_->describe_member(channel_->rank()), call_.what,
              channel_->describe_member(peer), describe_call_code(code));
      }
    return "";
  }

 private:
  void reduce(const Phase& phase) {
    for (const Reduction& sum : phase.reductions)
      reduce_span(sum.out, sum.inputs.data(), static_cast<int>(sum.inputs.size()), sum.elements, call_.code.dtype,
                  call_.code.op);
  }

  std::shared_ptr<MpiChannel> channel_;
  Collective call_;
  const int tag_;
  std::size_t next_ = 0;
};

char* bytes_of(const torch::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }
std::int64_t item_of(const torch::Tensor& tensor) { return static_cast<std::int64_t>(tensor.element_size()); }

// Elements of each rank's rows.
std::vector<std::int64_t> scaled(const Sizes& rows, std::int64_t by) {
  std::vector<std::int64_t> scaled;
  for (const std::int64_t size : rows) scaled.push_back(size * by);
  return scaled;
}

void check_host(const torch::Tensor& tensor, const char* call) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  throw UsageError({call, "of a tensor on " + tensor.device().str() + " over mpi", "a CPU tensor",
                    "use comm.backend: nccl, or copy it to the CPU"});
}

}  // namespace

// A collective before it is planned.
struct MpiGroup::Call {
  CollectiveKind kind;
  torch::Tensor target;  // undefined for a barrier
  torch::Tensor in;      // undefined where the call is in place
  ReduceOp op = ReduceOp::kSum;
  std::function<Plan(const torch::Tensor& target, const torch::Tensor& in)> plan;  // of contiguous ones
};

Member MpiGroup::member() const {
  const MpiLimits& limits = channel_->engine()->limits();
  return {rank(), size(), limits.direct_bytes, limits.segment_bytes};
}

Work MpiGroup::post(Call call) {
  RECORD_FUNCTION(collective_label(call.kind), (std::vector<c10::IValue>{call.in.defined() ? call.in : call.target}));
  channel_->engine()->throw_if_failed();
  const char* name = collective_name(call.kind);
  check_host(call.target, name);
  check_host(call.in, name);
  Collective collective;
  collective.code.kind = call.kind;
  collective.code.op = call.op;
  collective.what = name;
  if (call.target.defined()) {
    collective.code.dtype = call.target.scalar_type();
    collective.what += " of " + describe(call.in.defined() ? call.in : call.target);
    collective.target = call.target;
    if (!call.target.is_contiguous()) call.target = collective.temporary = call.target.detach().contiguous();
    collective.kept.push_back(call.target.storage());
  }
  if (call.in.defined()) {
    call.in = call.in.detach().contiguous();
    collective.kept.push_back(call.in.storage());
  }
  collective.plan = call.plan(call.target, call.in);
  collective.sequence = collectives_++;
  auto operation = std::make_shared<MpiCollective>(channel_, std::move(collective));
  channel_->engine()->post(operation);
  return Work(std::move(operation));
}

Work MpiGroup::send(const torch::Tensor& tensor, int to, const Tag& tag) {
  check_rank(to, size(), "send");
  check_host(tensor, "send");
  channel_->engine()->post(make_send(channel_, tensor, to, tag, payloads_++));
  return {};
}

Work MpiGroup::recv(const TensorSpec& spec, int from, const Tag& tag) {
  check_rank(from, size(), "recv");
  if (!spec.device.is_cpu()) check_host(torch::empty({0}, spec.device), "recv");
  auto operation = make_receive(channel_, spec, from, tag);
  channel_->engine()->post(operation);
  return Work(std::move(operation));
}

Work MpiGroup::all_reduce(torch::Tensor& tensor, ReduceOp op) {
  reduce_span(nullptr, nullptr, 1, 0, tensor.scalar_type(), op);  // refuses types without a sum before any rank waits
  return post({CollectiveKind::kAllReduce, tensor, {}, op, [&](const torch::Tensor& target, const torch::Tensor&) {
                 return plan_all_reduce(member(), bytes_of(target), target.numel(), item_of(target));
               }});
}

Work MpiGroup::all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) {
  check_gather(out, in, sizes, rank(), size(), "all_gather");
  return post({CollectiveKind::kAllGather, out, in, ReduceOp::kSum,
               [&](const torch::Tensor& target, const torch::Tensor& source) {
                 return plan_all_gather(member(), bytes_of(target), bytes_of(source),
                                        scaled(sizes, row_elements(target) * item_of(target)));
               }});
}

Work MpiGroup::reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) {
  check_gather(in, out, sizes, rank(), size(), "reduce_scatter");
  reduce_span(nullptr, nullptr, 1, 0, in.scalar_type(), op);
  return post(
      {CollectiveKind::kReduceScatter, out, in, op, [&](const torch::Tensor& target, const torch::Tensor& source) {
         return plan_reduce_scatter(member(), bytes_of(target), bytes_of(source), scaled(sizes, row_elements(source)),
                                    item_of(source));
       }});
}

Work MpiGroup::broadcast(torch::Tensor& tensor, int root) {
  check_rank(root, size(), "broadcast");
  return post(
      {CollectiveKind::kBroadcast, tensor, {}, ReduceOp::kSum, [&](const torch::Tensor& target, const torch::Tensor&) {
         return plan_broadcast(member(), bytes_of(target), target.numel() * item_of(target), root);
       }});
}

Work MpiGroup::all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) {
  const auto rows = [&](const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); };
  const auto ranks = static_cast<std::size_t>(size());
  if (out_sizes.size() != ranks || in_sizes.size() != ranks || out.dim() == 0 || in.dim() != out.dim() ||
      in.scalar_type() != out.scalar_type() || out.size(0) != rows(out_sizes) || in.size(0) != rows(in_sizes) ||
      row_elements(out) != row_elements(in)) {
    throw UsageError(
        {"all_to_all",
         fmt::format("out {} and in {} don't fit the out sizes {} and in sizes {} of {} ranks", describe(out),
                     describe(in), fmt::join(out_sizes, ", "), fmt::join(in_sizes, ", "), ranks),
         "rows that are the sums of the sizes", ""});
  }
  return post({CollectiveKind::kAllToAll, out, in, ReduceOp::kSum,
               [&](const torch::Tensor& target, const torch::Tensor& source) {
                 const std::int64_t row = row_elements(target) * item_of(target);
                 return plan_all_to_all(member(), bytes_of(target), bytes_of(source), scaled(out_sizes, row),
                                        scaled(in_sizes, row));
               }});
}

Work MpiGroup::barrier() {
  return post({CollectiveKind::kBarrier, {}, {}, ReduceOp::kSum, [&](const torch::Tensor&, const torch::Tensor&) {
                 return plan_barrier(member());
               }});
}

}  // namespace gantry
