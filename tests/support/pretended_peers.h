// A backend with one real rank; its peers are simulated without memory. In every collective the peers
// contribute the same values as the real rank. Tests use it to measure one rank of a job that is too large
// for their machine.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "gantry/comm/process_group_mesh.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

class PretendedPeersGroup final : public ProcessGroup {
 public:
  PretendedPeersGroup(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Work send(const torch::Tensor&, int, const Tag&) override { refuse("send"); }
  Work hand_over(const torch::Tensor&, int, const Tag&) override { refuse("hand_over"); }
  Work recv(const TensorSpec&, int, const Tag&) override { refuse("recv"); }

  Work start(const Collective& call) override {
    const torch::NoGradGuard no_grad;
    switch (call.kind) {
      case OperationKind::kAllReduce:
        if (call.op == ReduceOp::kSum) torch::Tensor(*call.target).mul_(size_);
        break;
      case OperationKind::kAllGather:
        gather(*call.target, *call.in, *call.sizes);
        break;
      case OperationKind::kReduceScatter: {
        torch::Tensor(*call.target).copy_(rows_of(*call.in, *call.sizes, rank_));
        if (call.op == ReduceOp::kSum) torch::Tensor(*call.target).mul_(size_);
        break;
      }
      case OperationKind::kBroadcast:
        if (call.root != rank_) refuse("broadcast of another rank's");
        break;
      case OperationKind::kBarrier:
        break;
      default:
        refuse("all_to_all");
    }
    return {};
  }
  void abort(const std::string&) override {}

 private:
  [[noreturn]] static void refuse(const std::string& call) {
    throw std::logic_error("pretended peers have no " + call);
  }

  static torch::Tensor rows_of(const torch::Tensor& all, const Sizes& sizes, int rank) {
    std::int64_t begin = 0;
    for (int before = 0; before < rank; ++before) begin += sizes[before];
    return all.narrow(0, begin, sizes[rank]);
  }

  // Peers with more rows than this rank contribute zeros for the additional rows.
  void gather(const torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) const {
    rows_of(out, sizes, rank_).copy_(in);
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      const std::int64_t common = std::min(sizes[other], sizes[rank_]);
      torch::Tensor rows = rows_of(out, sizes, other);
      rows.narrow(0, 0, common).copy_(in.narrow(0, 0, common));
      rows.narrow(0, common, sizes[other] - common).zero_();
    }
  }

  int rank_, size_;
};

class PretendedPeers final : public Backend {
 public:
  explicit PretendedPeers(int size, int rank = 0) : rank_(rank), size_(size) {}
  const char* name() const override { return "pretended peers"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<ProcessGroup> make_group(const std::string& /*label*/, const std::vector<int>& ranks) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    return std::make_unique<PretendedPeersGroup>(static_cast<int>(place), static_cast<int>(ranks.size()));
  }
  void abort(const std::string&) override {}
  bool has_ended(int) const override { return false; }

 private:
  int rank_, size_;
};

}  // namespace gantry::testing
