#include "gantry/plugins/divergence.h"

#include <cmath>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// log sum exp over the columns of all ranks, for student and teacher: [2, rows, 1].
torch::Tensor log_totals(const torch::Tensor& student, const torch::Tensor& teacher, ProcessGroup* group) {
  torch::Tensor largest = torch::stack({student.amax(1, true), teacher.amax(1, true)});
  if (group) group->all_reduce(largest, ReduceOp::kMax).wait();
  torch::Tensor totals =
      torch::stack({(student - largest[0]).exp().sum(1, true), (teacher - largest[1]).exp().sum(1, true)});
  if (group) group->all_reduce(totals).wait();
  return totals.log() + largest;
}

// The logarithms of probabilities [rows, columns].
struct LogProbabilities {
  torch::Tensor student, teacher;
  torch::Tensor mixture(double beta) const {
    return torch::logaddexp(student + std::log1p(-beta), teacher + std::log(beta));
  }
};

// The sums of the divergence's terms over the columns of this rank, [sums, rows]; jsd has two sums.
torch::Tensor own_sums(const LogProbabilities& logs, const DivergenceKind& kind) {
  const torch::Tensor &student = logs.student, &teacher = logs.teacher;
  if (kind.name == "forward") return (teacher.exp() * (teacher - student)).sum(1).unsqueeze(0);
  if (kind.name == "reverse") return (student.exp() * (student - teacher)).sum(1).unsqueeze(0);
  const torch::Tensor mixture = logs.mixture(kind.beta);
  return torch::stack({(student.exp() * (student - mixture)).sum(1), (teacher.exp() * (teacher - mixture)).sum(1)});
}

// The gradient of the divergence with respect to the student's scaled logits. `first`: the first sum [rows, 1].
torch::Tensor gradient_of(const LogProbabilities& logs, const torch::Tensor& first, const DivergenceKind& kind) {
  const torch::Tensor student = logs.student.exp();
  if (kind.name == "forward") return student - logs.teacher.exp();
  if (kind.name == "reverse") return student * (logs.student - logs.teacher - first);
  return (1 - kind.beta) * student * (logs.student - logs.mixture(kind.beta) - first);
}

struct Divergence : torch::autograd::Function<Divergence> {
  static Variable forward(AutogradContext* context, const Variable& student, const torch::Tensor& teacher,
                          ProcessGroup* group, const DivergenceKind& kind) {
    const torch::Tensor own = scaled_logits(student, kind.temperature),
                        other = scaled_logits(teacher, kind.temperature);
    const torch::Tensor totals = log_totals(own, other, group);
    torch::Tensor sums = own_sums({own - totals[0], other - totals[1]}, kind);
    if (group) group->all_reduce(sums).wait();
    context->save_for_backward({student, teacher, totals, sums});
    context->saved_data["name"] = kind.name;
    context->saved_data["beta"] = kind.beta;
    context->saved_data["temperature"] = kind.temperature;
    return kind.name == "jsd" ? (1 - kind.beta) * sums[0] + kind.beta * sums[1] : sums[0];
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &student = saved[0], &totals = saved[2];
    const DivergenceKind kind{.name = context->saved_data["name"].toStringRef(),
                              .beta = context->saved_data["beta"].toDouble(),
                              .temperature = context->saved_data["temperature"].toDouble()};
    const LogProbabilities logs{scaled_logits(student, kind.temperature) - totals[0],
                                scaled_logits(saved[1], kind.temperature) - totals[1]};
    const torch::Tensor gradient = gradient_of(logs, saved[3][0].unsqueeze(1), kind);
    return {(gradient * (gradients[0] / kind.temperature).unsqueeze(1)).to(student.scalar_type()), {}, {}, {}};
  }
};

}  // namespace

torch::Tensor scaled_logits(const torch::Tensor& logits, double temperature) {
  return logits.to(at::promote_types(logits.scalar_type(), torch::kFloat32)) / temperature;
}

torch::Tensor divergences(const torch::Tensor& student, const torch::Tensor& teacher, ProcessGroup* group,
                          const DivergenceKind& kind) {
  return Divergence::apply(student, teacher, group, kind);
}

}  // namespace gantry
