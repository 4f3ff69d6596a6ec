#include "gantry/comm/local/local_backend.h"

#include <algorithm>
#include <cstring>
#include <fmt/ranges.h>

#include "gantry/comm/local/local_group_state.h"
#include "gantry/core/base/block_pool.h"
#include "gantry/core/error.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// Other threads read and write the memory directly, so it must be in host memory.
void check_reachable(const torch::Tensor& tensor, const char* call) {
  if (tensor.defined()) check_on_cpu(tensor.device(), call, "local");
}

// Returns a contiguous copy of the current values.
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
         fmt::format("{} from {} arrived as {}", describe(tag_), group_->describe_member(from_), describe(tensor_)),
         fmt::format("{} [{}]", dtype_name(dtype_), fmt::join(shape_, ", ")),
         "use the same shape and type on both sides"});
    group_->job().fail(PeerError::kExitCode, error.what());  // even if the exception is caught
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

  // Starts another collective, after the last one was done. At the end `temporary` is copied to `copy_back`,
  // if the call's tensor is not contiguous.
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
    check_on_cpu(spec.device, "recv", "local");
    return Work(make_pooled<LocalRecv>(receives_, state_, rank_, from, tag, spec));
  }
  Work start(const Collective& call) override {
    call.check(rank_, size());
    check_reachable(call.brought(), name_of(call.kind));
    if (call.target) check_reachable(*call.target, name_of(call.kind));
    state_->job().throw_if_failed();
    const torch::Tensor target = call.target ? *call.target : torch::Tensor();
    torch::Tensor temporary;
    if (target.defined() && !target.is_contiguous()) temporary = target.contiguous();
    const torch::Tensor& worked_on = temporary.defined() ? temporary : target;
    auto collective = idle_collective();
    LocalGroupState::Slot& slot = call.in ? state_->post(rank_, call, call.in->contiguous(), worked_on)
                                          : state_->post(rank_, call, worked_on, {});
    collective->begin(slot, target, temporary);
    return Work(std::move(collective));
  }
  void abort(const std::string& reason) override { state_->job().fail(PeerError::kExitCode, reason); }

 private:
  Work push(torch::Tensor tensor, int to, const Tag& tag, const char* call) {
    check_rank(to, size(), call);
    check_reachable(tensor, call);
    state_->job().throw_if_failed();
    state_->push(rank_, to, tag, std::move(tensor));
    return {};
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
  // Reused: their number is the maximum number of collectives in flight.
  std::vector<std::shared_ptr<LocalCollective>> collectives_;
  std::size_t next_ = 0;
  std::shared_ptr<BlockPool> receives_ = std::make_shared<BlockPool>();
};

}  // namespace

LocalJob::LocalJob(int ranks, const WaitLimits& limits, std::function<std::string(int)> describe_rank)
    : ranks_(ranks),
      timeout_seconds_(limits.timeout_seconds),
      notices_(limits),
      describe_rank_(std::move(describe_rank)),
      crowded_(ranks > usable_cores()),
      ended_(static_cast<std::size_t>(ranks)) {}

void LocalJob::fail(int exit_code, const std::string& cause) {
  if (failure_.set(exit_code, cause)) wake_all();
}

void LocalJob::note_ended(int rank) {
  ended_[rank].store(true, std::memory_order_release);
  some_ended_.store(true, std::memory_order_release);
  wake_all();
}

void LocalJob::wake_all() {
  std::vector<std::shared_ptr<LocalGroupState>> groups;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, group] : groups_) groups.push_back(group);
  }
  for (const auto& group : groups) group->wake_all();
}

std::shared_ptr<LocalGroupState> LocalJob::group_state(const std::string& label, const std::vector<int>& ranks, int n) {
  const std::lock_guard lock(mutex_);
  auto& state = groups_[{ranks, n}];
  if (!state) state = std::make_shared<LocalGroupState>(*this, label, ranks);
  return state;
}

std::unique_ptr<ProcessGroup> LocalBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  auto state = job_.group_state(label, ranks, made_[ranks]++);
  return std::make_unique<LocalGroup>(std::move(state), static_cast<int>(place - ranks.begin()));
}

void LocalBackend::abort(const std::string& reason) { job_.fail(PeerError::kExitCode, reason); }

bool LocalBackend::has_ended(int rank) const { return job_.has_ended(rank); }

}  // namespace gantry
