// The operations of a mixer in place of attention, from the description of its kind.
#include <algorithm>
#include <string>
#include <variant>

#include "gantry/core/axis.h"
#include "gantry/core/slice.h"
#include "gantry/models/described/mixers/mixer_kind.h"
#include "gantry/planner/operations.h"

namespace gantry::planner {
namespace {

// The part of a matrix on one of `ranks` tensor ranks.
struct MatrixPart {
  double in, out;
  bool is_row = false;
};

MatrixPart part_of(const std::string& module, const models::ParameterShape& parameter,
                   const std::vector<models::ModuleShard>& rules, int ranks) {
  MatrixPart part{as_double(parameter.shape[1]), as_double(parameter.shape[0])};
  for (const models::ModuleShard& rule : rules) {
    if (rule.path != module) continue;
    part.is_row = std::holds_alternative<Row>(rule.style);
    const ParameterSplit split = split_of(rule.style, parameter.shape, {{axis::kTensor, ranks}});
    if (split.shards.empty()) continue;
    const ShardSpec& shard = split.shards.front();
    double largest = 0;
    for (int rank = 0; rank < ranks; ++rank) largest = std::max(largest, as_double(shard.local_size(rank)));
    (part.is_row ? part.in : part.out) = largest;
  }
  return part;
}

}  // namespace

// See nn/head_exchange.cpp: tokens are exchanged for heads before the recurrence and back after it, in three copies of
// the tensors. On the way back, the last copy is an addition to zeros.
void OperationBuilder::exchange_heads(double numbers) {
  const double half = bytes_ * tokens_ * numbers / 2;
  for (auto* operations : {&part_.forward, &part_.input_gradient}) {
    operations->push_back({Operation::Kind::kHeads, 0, half});
    operations->push_back({Operation::Kind::kElementwise, 0, (6 + 8) * half});
    operations->push_back({Operation::Kind::kHeads, 0, half});
  }
}

// The projections of the layer's input share one kept copy of it.
void OperationBuilder::mixer(const models::MixerKind& mixer) {
  const std::string weight = ".weight";
  const auto rules = mixer.shards();
  const models::MixerWork work = mixer.work();
  const double ranks = layout_.tensor;
  enter_split();
  bool keeps_input = true;
  double core = work.flops;  // and of parameters that are not matrices, such as kernels
  for (const models::ParameterShape& parameter : mixer.parameters(workload_.model.hidden)) {
    const bool is_matrix = parameter.shape.size() == 2 && parameter.name.ends_with(weight);
    const bool is_bias = parameter.name.ends_with("bias");
    if (!is_matrix && !is_bias && parameter.shape.size() > 1)
      core += 2 * parameter.used * as_double(elements_of(parameter.shape));
    if (!is_matrix) continue;
    const std::string module = parameter.name.substr(0, parameter.name.size() - weight.size());
    const MatrixPart part = part_of(module, parameter, rules, layout_.tensor);
    const bool reads_input = !part.is_row && parameter.shape[1] == workload_.model.hidden;
    const double kept = reads_input ? (keeps_input ? tokens_between_ * hidden_ : 0) : tokens_ * part.in;
    if (reads_input) keeps_input = false;
    product(tokens_, part.in, part.out, bytes_ * kept);
    if (!part.is_row) keep(bytes_ * tokens_ * part.out);
  }
  // The work of the context rank with the most heads or channels.
  const std::int64_t heads = std::max<std::int64_t>(1, mixer.largest_context(layout_.tensor));
  const double tokens = tokens_ * largest_part(heads, layout_.context) * layout_.context / as_double(heads);
  for (auto* operations : {&part_.forward, &part_.input_gradient, &part_.input_gradient})
    operations->push_back({Operation::Kind::kProduct, tokens * core / ranks, 0});
  const double moved = bytes_ * tokens * work.moved / ranks;
  elementwise(moved, 2 * moved);
  const double wide = std::max(4.0, bytes_);
  keep(tokens * (bytes_ * work.kept + wide * work.kept_wide) / ranks);
  hold(wide * tokens * work.working / ranks);
  if (layout_.tensor > 1 && workload_.program.keeps_results) keep(bytes_ * tokens_ * hidden_);  // as in attention()
  if (layout_.context > 1) exchange_heads(work.exchanged_of(layout_.tensor, layout_.context));
  leave_split();
}

}  // namespace gantry::planner
