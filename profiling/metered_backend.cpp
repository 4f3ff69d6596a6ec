#include "gantry/profiling/metered_backend.h"

#include <algorithm>
#include <chrono>
#include <map>

#include <torch/torch.h>

namespace gantry {
namespace {

enum Operation { kSend, kRecv, kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kBarrier, kOperations };
constexpr const char* kNames[kOperations] = {"send",           "recv",      "all_reduce", "all_gather",
                                             "reduce_scatter", "broadcast", "all_to_all", "barrier"};

std::int64_t bytes_of(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
}

std::int64_t bytes_of(const TensorSpec& spec) {
  std::int64_t bytes = static_cast<std::int64_t>(torch::elementSize(spec.dtype));
  for (const auto size : spec.shape) bytes *= size;
  return bytes;
}

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

// Counted by any thread that posts or waits, so by atomics. Groups are made before anything is counted by them.
class MeteredBackend::Meter {
 public:
  struct Cell {
    std::atomic<std::int64_t> calls{0}, bytes{0}, nanoseconds{0};
  };
  using Cells = std::array<Cell, kOperations>;

  Cells& cells_of(const std::string& label) { return cells_[label]; }
  bool counts() const { return counts_.load(std::memory_order_relaxed); }
  void set_counts(bool counts) { counts_ = counts; }
  const std::map<std::string, Cells>& all() const { return cells_; }

 private:
  std::map<std::string, Cells> cells_;
  std::atomic<bool> counts_{false};
};

namespace {

using Meter = MeteredBackend::Meter;

class MeteredWork final : public Work::State {
 public:
  MeteredWork(std::shared_ptr<Meter> meter, Meter::Cell& cell, Work inner)
      : meter_(std::move(meter)), cell_(cell), inner_(std::move(inner)) {}
  bool done() override { return inner_.done(); }
  void wait() override {
    const std::int64_t start = now();
    inner_.wait();
    cell_.nanoseconds += now() - start;
  }
  torch::Tensor result() override { return inner_.result(); }

 private:
  std::shared_ptr<Meter> meter_;  // keeps the cell
  Meter::Cell& cell_;
  Work inner_;
};

class MeteredGroup final : public ProcessGroup {
 public:
  MeteredGroup(std::unique_ptr<ProcessGroup> inner, std::shared_ptr<Meter> meter, Meter::Cells& cells)
      : inner_(std::move(inner)), meter_(std::move(meter)), cells_(cells) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Work send(const torch::Tensor& tensor, int to, const Tag& tag) override {
    return count(kSend, bytes_of(tensor), [&] { return inner_->send(tensor, to, tag); });
  }
  Work hand_over(const torch::Tensor& tensor, int to, const Tag& tag) override {
    if (meter_->counts()) {
      ++cells_[kSend].calls;
      cells_[kSend].bytes += bytes_of(tensor);
    }
    return inner_->hand_over(tensor, to, tag);  // nobody waits for it
  }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override {
    return count(kRecv, bytes_of(spec), [&] { return inner_->recv(spec, from, tag); });
  }
  Work all_reduce(torch::Tensor& tensor, ReduceOp op) override {
    return count(kAllReduce, bytes_of(tensor), [&] { return inner_->all_reduce(tensor, op); });
  }
  Work all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) override {
    return count(kAllGather, bytes_of(in), [&] { return inner_->all_gather(out, in, sizes); });
  }
  Work reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) override {
    return count(kReduceScatter, bytes_of(in), [&] { return inner_->reduce_scatter(out, in, sizes, op); });
  }
  Work broadcast(torch::Tensor& tensor, int root) override {
    return count(kBroadcast, bytes_of(tensor), [&] { return inner_->broadcast(tensor, root); });
  }
  Work all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) override {
    return count(kAllToAll, bytes_of(in), [&] { return inner_->all_to_all(out, in, out_sizes, in_sizes); });
  }
  Work barrier() override {
    return count(kBarrier, 0, [&] { return inner_->barrier(); });
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  template <class Post>
  Work count(Operation operation, std::int64_t bytes, const Post& post) {
    if (!meter_->counts()) return post();
    Meter::Cell& cell = cells_[operation];
    ++cell.calls;
    cell.bytes += bytes;
    const std::int64_t start = now();
    Work work = post();
    cell.nanoseconds += now() - start;
    return Work(std::make_shared<MeteredWork>(meter_, cell, std::move(work)));
  }

  std::unique_ptr<ProcessGroup> inner_;
  std::shared_ptr<Meter> meter_;
  Meter::Cells& cells_;
};

}  // namespace

MeteredBackend::MeteredBackend(Backend& inner) : inner_(inner), meter_(std::make_shared<Meter>()) {}
MeteredBackend::~MeteredBackend() = default;

std::unique_ptr<ProcessGroup> MeteredBackend::make_group(const std::string& label, const std::vector<int>& ranks) {
  auto group = inner_.make_group(label, ranks);
  if (ranks.size() == 1) return group;  // nothing travels
  return std::make_unique<MeteredGroup>(std::move(group), meter_, meter_->cells_of(label));
}

void MeteredBackend::resume() { meter_->set_counts(true); }
void MeteredBackend::pause() { meter_->set_counts(false); }

std::vector<CommunicationCount> MeteredBackend::counts() const {
  std::vector<CommunicationCount> counts;
  for (const auto& [label, cells] : meter_->all())
    for (int operation = 0; operation < kOperations; ++operation)
      if (const auto& cell = cells[operation]; cell.calls > 0)
        counts.push_back(
            {label, kNames[operation], cell.calls, cell.bytes, static_cast<double>(cell.nanoseconds) / 1e9});
  return counts;
}

}  // namespace gantry
