// A part of a model as operations, one thing at a time: its forward and its backward, and what it keeps in between.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gantry/planner/operations.h"

namespace gantry::planner {

// A rank's part of what `ranks` share; the largest one, where they do not divide it.
double part_of(std::int64_t whole, int ranks);

// Of one rank and one microbatch; each call adds something behind what there is.
class OperationBuilder {
 public:
  OperationBuilder(const Workload& workload, const Layout& layout)
      : workload_(workload),
        layout_(layout),
        bytes_(value_bytes(workload.precision)),
        tokens_(static_cast<double>(workload.sequence) / layout.context * layout.microbatch),
        tokens_between_(layout.sequence_parallel ? tokens_ / layout.tensor : tokens_),
        hidden_(static_cast<double>(workload.model.hidden)) {}

  PartOperations take() { return std::move(part_); }
  double bytes() const { return bytes_; }
  double tokens() const { return tokens_; }
  double tokens_between() const { return tokens_between_; }

  // rows x in times in x out.
  void product(double rows, double in, double out, double kept_input, bool bias = false);
  // So many values read and written in the forward, and in the backward.
  void elementwise(double forward_bytes, double backward_bytes, const std::string& name = "") {
    part_.forward.push_back({Operation::Kind::kElementwise, 0, forward_bytes, name});
    part_.input_gradient.push_back({Operation::Kind::kElementwise, 0, backward_bytes, name});
  }
  void keep(double bytes) { part_.kept += bytes; }
  void keep_for_core(double bytes) { part_.kept += bytes, part_.kept_core += bytes; }
  void hold(double bytes) {
    if (workload_.program.keeps_results) part_.working = std::max(part_.working, bytes);
  }
  void end_attention() { part_.kept_attention = part_.kept; }
  void keep_input() { part_.kept_inputs += bytes_ * tokens_between_ * hidden_; }

  void norm(const models::NormSpec& norm);
  // Into what tensor ranks split: with sequence parallelism the parts are gathered, and once more for the weights'
  // gradients, unless the whole is kept.
  void enter_split();
  // Gantry sums a copy (nn/autograd_collectives.cpp).
  void leave_split();
  // What a part adds to the residual stream, with its dropout.
  void residual(double dropout);
  void attention(const models::AttentionSpec& attention);
  void mlp(double rows, double width, const models::MlpSpec& mlp, bool keeps_input);
  void experts(const models::ExpertsSpec& experts);

 private:
  double whole() const { return bytes_ * tokens_ * hidden_; }
  // Parts of the tokens are gathered, or sums of them scattered. Gantry's collectives do so by rows: of several samples
  // the part and the whole are copied (comm/process_group.cpp).
  void move_parts(std::vector<Operation>& operations) const;
  void core(const models::AttentionSpec& attention);
  void projections(const models::AttentionSpec& attention);
  double own_heads(std::int64_t heads) const { return part_of(heads, layout_.tensor); }

  const Workload& workload_;
  const Layout& layout_;
  double bytes_, tokens_, tokens_between_, hidden_;
  PartOperations part_;
};

}  // namespace gantry::planner
