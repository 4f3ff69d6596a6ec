#include "gantry/comm/recording_backend.h"

#include <array>
#include <span>
#include <utility>

#include <torch/torch.h>

#include "gantry/comm/backends.h"
#include "gantry/comm/group_calls.h"
#include "gantry/comm/recorder/flight_recorder.h"
#include "gantry/core/block_pool.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

using recorder::Kind;
using recorder::RankRecorder;
using Step = recorder::State;

// Recorders keep no texts of their own.
const char* lasting_name(torch::ScalarType type) {
  static const auto* names = [] {
    auto* all = new std::array<std::string, static_cast<std::size_t>(torch::ScalarType::NumOptions)>;
    for (std::size_t i = 0; i < all->size(); ++i) (*all)[i] = dtype_name(static_cast<torch::ScalarType>(i));
    return all;
  }();
  return (*names)[static_cast<std::size_t>(type)].c_str();
}

const char* name_of(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "max", "min"};
  return kNames[static_cast<int>(op)];
}

recorder::MessageTag recorded(const Tag& tag) {
  return {static_cast<recorder::MessageTag::Kind>(tag.kind), tag.stage, tag.microbatch, tag.entry};
}

class RecordedWork final : public Work::State {
 public:
  // `device` is the backend, where its waits leave operations to a device; else null. `given_away`: of a hand_over.
  RecordedWork(std::shared_ptr<RankRecorder> recorder, std::uint64_t number, Work inner, const DeviceBackend* device,
               bool given_away)
      : recorder_(std::move(recorder)),
        number_(number),
        inner_(std::move(inner)),
        device_(device),
        given_away_(given_away) {}

  bool done() override {
    return watched([&] {
      if (!inner_.done()) return false;
      note(Step::kDone);
      return true;
    });
  }
  void wait() override {
    if (noted_) return inner_.wait();  // once more: another stream may have to
    if (done()) return;
    recorder_->waits(number_);
    watched([&] {
      if (device_) device_->take_end();  // an earlier wait's, for which nobody asked
      inner_.wait();
      if (const auto end = device_ ? device_->take_end() : nullptr)
        note_at(*end);
      else
        note(Step::kDone);
      return true;
    });
  }
  torch::Tensor result() override { return inner_.result(); }
  void dropped() override {
    if (!given_away_) return wait();
    inner_ = Work();
    note(Step::kDone);  // of this rank nothing more is wanted
  }

 private:
  template <class Body>
  bool watched(const Body& body) {
    try {
      return body();
    } catch (...) {
      note(Step::kFailed);
      throw;
    }
  }
  void note(Step state) {
    if (!std::exchange(noted_, true)) recorder_->finish(number_, state);
  }
  // The host goes on and the device waits: that is the rank's wait until the device is through.
  void note_at(DeviceEnd& end) {
    if (std::exchange(noted_, true)) return;
    end.when_ended([recorder = recorder_, number = number_](bool done) {
      recorder->finish(number, done ? Step::kDone : Step::kFailed);
    });
  }

  std::shared_ptr<RankRecorder> recorder_;
  const std::uint64_t number_;
  Work inner_;
  const DeviceBackend* device_;
  const bool given_away_;
  bool noted_ = false;
};

class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup(std::unique_ptr<ProcessGroup> inner, std::shared_ptr<RankRecorder> recorder, int group,
                 std::vector<int> ranks, const DeviceBackend* device)
      : inner_(std::move(inner)),
        recorder_(std::move(recorder)),
        group_(group),
        ranks_(std::move(ranks)),
        device_(device) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void abort(const std::string& reason) override { inner_->abort(reason); }

  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "send");
    return post(Kind::kSend, tensor, to, recorded(tag), "", [&] { return inner_->send(tensor, to, tag); });
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    check_rank(to, size(), "hand_over");
    return post(
        Kind::kSend, tensor, to, recorded(tag), "", [&] { return inner_->hand_over(tensor, to, tag); },
        /*given_away=*/true);
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    check_rank(from, size(), "recv");
    return post({.group = group_,
                 .kind = Kind::kReceive,
                 .peer = ranks_[from],
                 .tag = recorded(tag),
                 .dtype = lasting_name(spec.dtype),
                 .shape = spec.shape},
                [&] { return inner_->recv(spec, from, tag); });
  }
  Work all_reduce(torch::Tensor& tensor, ReduceOp op) override {
    return post(Kind::kAllReduce, tensor, -1, {}, name_of(op), [&] { return inner_->all_reduce(tensor, op); });
  }
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) override {
    return post(Kind::kAllGather, out, -1, {}, "", [&] { return inner_->all_gather(out, in, sizes); });
  }
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) override {
    return post(Kind::kReduceScatter, in, -1, {}, name_of(op),
                [&] { return inner_->reduce_scatter(out, in, sizes, op); });
  }
  Work broadcast(torch::Tensor& tensor, int root) override {
    check_rank(root, size(), "broadcast");
    return post(Kind::kBroadcast, tensor, root, {}, "", [&] { return inner_->broadcast(tensor, root); });
  }
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) override {
    return post(Kind::kAllToAll, in, -1, {}, "", [&] { return inner_->all_to_all(out, in, out_sizes, in_sizes); });
  }
  Work barrier() override {
    return post({.group = group_, .kind = Kind::kBarrier}, [&] { return inner_->barrier(); });
  }

 private:
  template <class Start>
  Work post(Kind kind, const torch::Tensor& tensor, int peer, const recorder::MessageTag& tag, const char* reduction,
            const Start& start, bool given_away = false) {
    const bool there = tensor.defined();
    return post(
        {.group = group_,
         .kind = kind,
         .peer = peer < 0 ? -1 : ranks_[peer],
         .tag = tag,
         .reduction = reduction,
         .dtype = there ? lasting_name(tensor.scalar_type()) : "",
         .shape = there ? std::span(tensor.sizes().data(), tensor.sizes().size()) : std::span<const std::int64_t>()},
        start, given_away);
  }

  template <class Start>
  Work post(const recorder::Call& call, const Start& start, bool given_away = false) {
    const std::uint64_t number = recorder_->post(call);
    Work work;
    try {
      work = start();
      // A send is mostly done at once, and its Work then not kept.
      if (call.kind == Kind::kSend && work.done()) {
        recorder_->finish(number, Step::kDone);
        return work;
      }
    } catch (...) {
      recorder_->finish(number, Step::kRefused);
      throw;
    }
    return Work(make_pooled<RecordedWork>(works_, recorder_, number, std::move(work), device_, given_away));
  }

  std::unique_ptr<ProcessGroup> inner_;
  std::shared_ptr<RankRecorder> recorder_;
  const int group_;
  const std::vector<int> ranks_;  // world ranks
  const DeviceBackend* device_;   // the backend that made `inner_`, if it is one; outlives what it makes
  std::shared_ptr<BlockPool> works_ = std::make_shared<BlockPool>();
};

}  // namespace

std::unique_ptr<ProcessGroup> RecordingBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  std::uint64_t number = 0;
  const int group = recorder_->begin_group(label, ranks, number);
  std::unique_ptr<ProcessGroup> made;
  try {
    made = inner_.make_group(label, ranks);
  } catch (...) {
    recorder_->finish(number, Step::kFailed);
    throw;
  }
  recorder_->made(group, number);
  return std::make_unique<RecordingGroup>(std::move(made), recorder_, group, ranks,
                                          dynamic_cast<const DeviceBackend*>(&inner_));
}

void run_recorded(World& world, const std::function<void(World&)>& body) {
  const auto ring = recorder::record_rank({.rank = world.rank(),
                                           .name = world.describe(),
                                           .backend = world.backend().name(),
                                           .timeout_seconds = world.config().comm.timeout_seconds});
  if (!ring) return body(world);
  RecordingBackend backend(world.backend(), ring);
  World recorded_world(backend, world.config(), world.mesh());
  try {
    body(recorded_world);
  } catch (...) {
    ring->ended(describe_exception(std::current_exception()).line);
    throw;
  }
  ring->ended("");
}

}  // namespace gantry
