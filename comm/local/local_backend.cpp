#include "gantry/comm/local/local_backend.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>

#include <torch/torch.h>

#include "gantry/comm/local/local_group_state.h"
#include "gantry/comm/reduce_kernels.h"
#include "gantry/core/block_pool.h"
#include "gantry/core/error.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// Other threads read and write the memory as it lies there.
void check_on_cpu(const torch::Device& device, const char* call) {
  if (device.is_cpu()) return;
  throw UsageError({call, "of a tensor on " + device.str() + " over local", "a CPU tensor",
                    "use comm.backend: nccl, or copy it to the CPU"});
}
void check_on_cpu(const torch::Tensor& tensor, const char* call) {
  if (tensor.defined()) check_on_cpu(tensor.device(), call);
}

// Of the values now, contiguous.
torch::Tensor copy_of(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  if (!tensor.is_contiguous()) return tensor.detach().contiguous();
  torch::Tensor copy = torch::empty(tensor.sizes(), tensor.dtype());
  if (tensor.nbytes() > 0) std::memcpy(copy.data_ptr(), tensor.const_data_ptr(), tensor.nbytes());
  return copy;
}

class LocalRecv final : public Work::State {
 public:
  LocalRecv(std::shared_ptr<LocalGroupState> group, int rank, int from, const Tag& tag, const TensorSpec& spec)
      : group_(std::move(group)),
        rank_(rank),
        from_(from),
        tag_(tag),
        dtype_(spec.dtype),
        shape_(spec.shape.begin(), spec.shape.end()) {}

  bool done() override {
    if (!taken_) {
      group_->job().throw_if_failed();
      if (group_->take(from_, rank_, tag_, &tensor_)) check();
    }
    return taken_;
  }
  void wait() override {
    if (taken_) return;
    group_->wait(
        rank_, [&] { return done(); }, [&] { return describe(tag_) + " from " + group_->describe_member(from_); },
        [&] { return std::vector<int>{from_}; });
  }
  torch::Tensor result() override { return tensor_; }

 private:
  void check() {
    taken_ = true;
    if (!tensor_.defined() || (tensor_.sizes().equals(shape_) && tensor_.scalar_type() == dtype_)) return;
    const PeerError error(
        {group_->describe_member(rank_),
         fmt::format("received {} from {} as {}", describe(tag_), group_->describe_member(from_), describe(tensor_)),
         fmt::format("{} [{}]", dtype_name(dtype_), fmt::join(shape_, ", ")), "make both sides agree on the shape"});
    group_->job().fail(PeerError::kExitCode, error.what());  // whether or not anybody catches it
    throw error;
  }

  std::shared_ptr<LocalGroupState> group_;
  int rank_, from_;
  Tag tag_;
  torch::ScalarType dtype_;
  c10::DimVector shape_;
  torch::Tensor tensor_;
  bool taken_ = false;
};

class LocalCollective final : public Work::State {
 public:
  LocalCollective(std::shared_ptr<LocalGroupState> group, int rank) : group_(std::move(group)), rank_(rank) {}

  // Once more, after it was done. `copy_back` gets `temporary`'s values at the end, where a non-contiguous tensor had
  // to be worked on elsewhere.
  void begin(LocalGroupState::Slot& slot, torch::Tensor copy_back, torch::Tensor temporary) {
    slot_ = &slot;
    copy_back_ = std::move(copy_back);
    temporary_ = std::move(temporary);
    done_ = false;
  }
  bool idle() const { return done_; }

  bool done() override {
    if (!done_) {
      group_->job().throw_if_failed();
      if (group_->progress(*slot_)) finish();
    }
    return done_;
  }
  void wait() override {
    if (done_) return;
    group_->wait(
        rank_, [&] { return done(); }, [&] { return group_->describe_pending(*slot_, rank_); },
        [&] { return group_->missing(*slot_); });
  }

 private:
  void finish() {
    if (temporary_.defined()) {
      const torch::NoGradGuard no_grad;
      copy_back_.copy_(temporary_);
    }
    copy_back_.reset();
    temporary_.reset();
    done_ = true;
    group_->leave(*slot_);
  }

  std::shared_ptr<LocalGroupState> group_;
  int rank_;
  LocalGroupState::Slot* slot_ = nullptr;
  torch::Tensor copy_back_, temporary_;
  bool done_ = true;
};

class LocalGroup final : public ProcessGroup {
 public:
  LocalGroup(std::shared_ptr<LocalGroupState> state, int rank) : state_(std::move(state)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_->size(); }

  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    return push(tensor.defined() && tensor.is_cpu() ? copy_of(tensor) : tensor, to, tag, "send");
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    return push(tensor.defined() ? tensor.detach() : tensor, to, tag, "hand_over");
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    check_rank(from, size(), "recv");
    check_on_cpu(spec.device, "recv");
    return Work(make_pooled<LocalRecv>(receives_, state_, rank_, from, tag, spec));
  }
  Work all_reduce(torch::Tensor& tensor, ReduceOp op) override {
    sum_item(tensor.scalar_type());  // refuses types without a sum before any rank waits
    return post({.kind = CollectiveKind::kAllReduce, .op = op, .in = tensor}, tensor, /*in_place=*/true);
  }
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) override {
    check_gather(out, in, sizes, rank_, size(), "all_gather");
    return post({.kind = CollectiveKind::kAllGather, .in = in.contiguous(), .out = out, .sizes = &sizes}, out, false);
  }
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) override {
    check_gather(in, out, sizes, rank_, size(), "reduce_scatter");
    sum_item(in.scalar_type());
    return post({.kind = CollectiveKind::kReduceScatter, .op = op, .in = in.contiguous(), .out = out, .sizes = &sizes},
                out, false);
  }
  Work broadcast(torch::Tensor& tensor, int root) override {
    check_rank(root, size(), "broadcast");
    return post({.kind = CollectiveKind::kBroadcast, .root = root, .in = tensor}, tensor, true);
  }
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) override {
    check_all_to_all(out, in, out_sizes, in_sizes, size());
    return post({.kind = CollectiveKind::kAllToAll,
                 .in = in.contiguous(),
                 .out = out,
                 .sizes = &in_sizes,
                 .out_sizes = &out_sizes},
                out, false);
  }
  Work barrier() override {
    torch::Tensor none;
    return post({.kind = CollectiveKind::kBarrier}, none, false);
  }
  void abort(const std::string& reason) override { state_->job().fail(PeerError::kExitCode, reason); }

 private:
  Work push(torch::Tensor tensor, int to, const Tag& tag, const char* call) {
    check_rank(to, size(), call);
    check_on_cpu(tensor, call);
    state_->job().throw_if_failed();
    state_->push(rank_, to, tag, std::move(tensor));
    return {};
  }
  // `target` is what the caller gets the result in: call.in where the call is in place, else call.out.
  Work post(LocalCall call, torch::Tensor& target, bool in_place) {
    RECORD_FUNCTION(collective_label(call.kind), (std::vector<c10::IValue>{call.in}));
    check_on_cpu(call.in, collective_name(call.kind));
    check_on_cpu(call.out, collective_name(call.kind));
    state_->job().throw_if_failed();
    torch::Tensor temporary;
    if (target.defined() && !target.is_contiguous()) {
      temporary = target.contiguous();
      (in_place ? call.in : call.out) = temporary;
    }
    auto collective = idle_collective();
    collective->begin(state_->post(rank_, std::move(call)), target, std::move(temporary));
    return Work(std::move(collective));
  }

  std::shared_ptr<LocalCollective> idle_collective() {
    for (std::size_t i = 0; i < collectives_.size(); ++i) {
      next_ = (next_ + 1) % collectives_.size();
      if (collectives_[next_].use_count() == 1 && collectives_[next_]->idle()) return collectives_[next_];
    }
    return collectives_.emplace_back(std::make_shared<LocalCollective>(state_, rank_));
  }

  std::shared_ptr<LocalGroupState> state_;
  int rank_;
  // Used again and again: as many as were ever under way at once.
  std::vector<std::shared_ptr<LocalCollective>> collectives_;
  std::size_t next_ = 0;
  std::shared_ptr<BlockPool> receives_ = std::make_shared<BlockPool>();
};

}  // namespace

std::unique_ptr<ProcessGroup> LocalBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  auto state = job_.group_state(label, ranks, made_[ranks]++);
  return std::make_unique<LocalGroup>(std::move(state), static_cast<int>(place - ranks.begin()));
}

void LocalBackend::abort(const std::string& reason) { job_.fail(PeerError::kExitCode, reason); }

bool LocalBackend::has_ended(int rank) const { return job_.has_ended(rank); }

}  // namespace gantry
