#include "gantry/comm/observed_backend.h"

#include <array>
#include <utility>

#include "gantry/comm/registered_memory.h"
#include "gantry/core/base/block_pool.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// Returns a name with static lifetime, because observers do not copy texts.
const char* lasting_name(torch::ScalarType type) {
  static const auto* names = [] {
    auto* all = new std::array<std::string, static_cast<std::size_t>(torch::ScalarType::NumOptions)>;
    for (std::size_t i = 0; i < all->size(); ++i) (*all)[i] = dtype_name(static_cast<torch::ScalarType>(i));
    return all;
  }();
  return (*names)[static_cast<std::size_t>(type)].c_str();
}

std::int64_t bytes_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

std::int64_t bytes_of(const TensorSpec& spec) {
  std::int64_t bytes = static_cast<std::int64_t>(torch::elementSize(spec.dtype));
  for (const auto size : spec.shape) bytes *= size;
  return bytes;
}

// Reports, when it is destroyed, that the thread leaves the call or the wait.
struct Leaving {
  OperationObserver& observer;
  std::uint64_t operation;
  ~Leaving() { observer.leave(operation); }
};

class ObservedWork final : public Work::State {
 public:
  // `owned_by_receiver`: the operation is a hand_over.
  ObservedWork(std::shared_ptr<OperationObserver> observer, std::uint64_t number, Work inner, const Backend& backend,
               bool owned_by_receiver)
      : observer_(std::move(observer)),
        number_(number),
        inner_(std::move(inner)),
        backend_(backend),
        given_away_(owned_by_receiver) {}

  bool done() override {
    return watched([&] {
      if (!inner_.done()) return false;
      note(OperationState::kDone);
      return true;
    });
  }
  void wait() override {
    observer_->enter_wait(number_);
    const Leaving leaving{*observer_, number_};
    if (noted_) return inner_.wait();  // waits again, because another stream may have to wait
    if (done()) return;
    observer_->waits(number_);
    watched([&] {
      backend_.take_end();  // drops the end of an earlier wait, which no caller has taken
      inner_.wait();
      if (const auto end = backend_.take_end())
        note_at(*end);
      else
        note(OperationState::kDone);
      return true;
    });
  }
  torch::Tensor result() override { return inner_.result(); }
  void dropped() override {
    if (!given_away_) return wait();
    inner_ = Work();
    note(OperationState::kDone);  // this rank needs nothing more of the operation
  }

 private:
  template <class Body>
  bool watched(const Body& body) {
    try {
      return body();
    } catch (...) {
      note(OperationState::kFailed);
      throw;
    }
  }
  void note(OperationState state) {
    if (!std::exchange(noted_, true)) observer_->finish(number_, state);
  }
  // The host continues while the device waits. The observed wait of the rank ends when the device has
  // completed the operation.
  void note_at(DeviceEnd& end) {
    if (std::exchange(noted_, true)) return;
    end.when_ended([observer = observer_, number = number_](bool done) {
      observer->finish(number, done ? OperationState::kDone : OperationState::kFailed);
    });
  }

  std::shared_ptr<OperationObserver> observer_;
  const std::uint64_t number_;
  Work inner_;
  const Backend& backend_;
  const bool given_away_;
  bool noted_ = false;
};

class ObservedGroup final : public ProcessGroup, public RegistersMemory {
 public:
  // `backend` has made `inner`, and must outlive the group. `group`: its number in the observer.
  ObservedGroup(std::unique_ptr<ProcessGroup> inner, std::shared_ptr<OperationObserver> observer, int group,
                std::vector<int> ranks, const Backend& backend)
      : inner_(std::move(inner)),
        observer_(std::move(observer)),
        group_(group),
        ranks_(std::move(ranks)),
        backend_(backend) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "send");
    return post(sent(tensor, to, tag), [&] { return inner_->send(tensor, to, tag); });
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "hand_over");
    return post(
        sent(tensor, to, tag), [&] { return inner_->hand_over(tensor, to, tag); }, /*owned_by_receiver=*/true);
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    check_rank(from, size(), "recv");
    return post({.group = group_,
                 .kind = OperationKind::kReceive,
                 .peer = ranks_[from],
                 .tag = tag,
                 .dtype = lasting_name(spec.dtype),
                 .shape = spec.shape,
                 .bytes = bytes_of(spec)},
                [&] { return inner_->recv(spec, from, tag); });
  }
  Work start(const Collective& call) override {
    const bool rooted = call.kind == OperationKind::kBroadcast;
    const bool reduces = call.kind == OperationKind::kAllReduce || call.kind == OperationKind::kReduceScatter;
    if (rooted) check_rank(call.root, size(), name_of(call.kind));
    // An all_gather is reported with the gathered tensor; its input is only this rank's part.
    const torch::Tensor& shown = call.kind == OperationKind::kAllGather ? *call.target : call.brought();
    ObservedCall notified{.group = group_, .kind = call.kind, .bytes = bytes_of(call.brought())};
    if (rooted) notified.peer = ranks_[call.root];
    if (reduces) notified.reduction = name_of(call.op);
    return post(described(notified, shown), [&] { return inner_->start(call); });
  }
  torch::Tensor registered_zeros(std::int64_t elements, const torch::TensorOptions& options) override {
    auto* registers = dynamic_cast<RegistersMemory*>(inner_.get());
    return registers ? registers->registered_zeros(elements, options) : torch::Tensor();
  }

 private:
  static ObservedCall described(ObservedCall call, const torch::Tensor& tensor) {
    if (!tensor.defined()) return call;
    call.dtype = lasting_name(tensor.scalar_type());
    call.shape = {tensor.sizes().data(), tensor.sizes().size()};
    return call;
  }
  ObservedCall sent(const torch::Tensor& tensor, int to, const Tag& tag) const {
    return described(
        {.group = group_, .kind = OperationKind::kSend, .peer = ranks_[to], .tag = tag, .bytes = bytes_of(tensor)},
        tensor);
  }

  template <class Start>
  Work post(const ObservedCall& call, const Start& start, bool owned_by_receiver = false) {
    const std::uint64_t number = observer_->post(call);
    if (number == OperationObserver::kUnobserved) return start();
    Work work;
    try {
      const Leaving leaving{*observer_, number};
      work = start();
      // A send is usually done at once; its Work is then not kept.
      if (call.kind == OperationKind::kSend && work.done()) {
        observer_->finish(number, OperationState::kDone);
        return work;
      }
    } catch (...) {
      observer_->finish(number, OperationState::kRefused);
      throw;
    }
    return Work(make_pooled<ObservedWork>(works_, observer_, number, std::move(work), backend_, owned_by_receiver));
  }

  std::unique_ptr<ProcessGroup> inner_;
  std::shared_ptr<OperationObserver> observer_;
  const int group_;
  const std::vector<int> ranks_;  // world ranks
  const Backend& backend_;
  std::shared_ptr<BlockPool> works_ = std::make_shared<BlockPool>();
};

}  // namespace

std::unique_ptr<ProcessGroup> ObservedBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  std::uint64_t number = 0;
  const int group = observer_->begin_group(label, ranks, number);
  if (group < 0) return inner_.make_group(label, ranks);
  std::unique_ptr<ProcessGroup> made;
  try {
    made = inner_.make_group(label, ranks);
  } catch (...) {
    observer_->finish(number, OperationState::kFailed);
    throw;
  }
  observer_->made(group, number);
  return std::make_unique<ObservedGroup>(std::move(made), observer_, group, ranks, inner_);
}

}  // namespace gantry
