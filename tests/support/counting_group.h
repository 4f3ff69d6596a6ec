// A group that counts the collectives that go through it.
#pragma once

#include "gantry/comm/process_group.h"

namespace gantry::testing {

class CountingGroup final : public ProcessGroup {
 public:
  explicit CountingGroup(ProcessGroup& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Work send(const torch::Tensor& t, int to, const Tag& tag) override { return inner_.send(t, to, tag); }
  Work hand_over(const torch::Tensor& t, int to, const Tag& tag) override { return inner_.hand_over(t, to, tag); }
  Work recv(const TensorSpec& spec, int from, const Tag& tag) override { return inner_.recv(spec, from, tag); }
  Work all_reduce(torch::Tensor& t, ReduceOp op) override { return ++all_reduces, inner_.all_reduce(t, op); }
  Work all_gather(torch::Tensor& o, const torch::Tensor& i, const Sizes& s) override {
    elements += o.numel();
    return ++all_gathers, inner_.all_gather(o, i, s);
  }
  Work reduce_scatter(torch::Tensor& o, const torch::Tensor& i, const Sizes& s, ReduceOp op) override {
    elements += i.numel();
    return ++reduce_scatters, inner_.reduce_scatter(o, i, s, op);
  }
  Work broadcast(torch::Tensor& t, int root) override { return ++others, inner_.broadcast(t, root); }
  Work all_to_all(torch::Tensor& o, const torch::Tensor& i, const Sizes& a, const Sizes& b) override {
    return ++others, inner_.all_to_all(o, i, a, b);
  }
  Work barrier() override { return inner_.barrier(); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

  int all_reduces = 0, all_gathers = 0, reduce_scatters = 0, others = 0;
  std::int64_t elements = 0;  // of the wholes that were gathered or scattered

 private:
  ProcessGroup& inner_;
};

}  // namespace gantry::testing
