// A process group that counts its collectives and forwards every call to another group.
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
  Work start(const Collective& call) override {
    switch (call.kind) {
      case OperationKind::kAllReduce:
        ++all_reduces;
        break;
      case OperationKind::kAllGather:
        ++all_gathers;
        elements += call.target->numel();
        break;
      case OperationKind::kReduceScatter:
        ++reduce_scatters;
        elements += call.in->numel();
        break;
      case OperationKind::kBroadcast:
      case OperationKind::kAllToAll:
        ++others;
        break;
      default:
        break;
    }
    return inner_.start(call);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }

  int all_reduces = 0, all_gathers = 0, reduce_scatters = 0, others = 0;
  std::int64_t elements = 0;  // elements of gathered outputs and of reduce-scatter inputs

 private:
  ProcessGroup& inner_;
};

}  // namespace gantry::testing
