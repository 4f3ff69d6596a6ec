#include "gantry/comm/shared_device/device_sum.h"

#include <torch/torch.h>

namespace gantry {
namespace {

void combine_into(torch::Tensor& out, const torch::Tensor& a, const torch::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      torch::add_out(out, a, b);
      return;
    case ReduceOp::kMax:
      torch::maximum_out(out, a, b);
      return;
    case ReduceOp::kMin:
      torch::minimum_out(out, a, b);
      return;
  }
}

}  // namespace

void sum_by_rank(torch::Tensor& out, const std::vector<torch::Tensor>& terms, int rank, ReduceOp op) {
  const auto type = out.scalar_type();
  if (type == torch::kBFloat16 || type == torch::kFloat16) {
    torch::Tensor sum = terms[0].to(torch::kFloat32);
    for (std::size_t i = 1; i < terms.size(); ++i) combine_into(sum, sum, terms[i].to(torch::kFloat32), op);
    out.copy_(sum);
  } else {
    // A later term than the second would be written over before it is read.
    const bool in_place = rank <= 1;
    torch::Tensor sum = in_place ? out : torch::empty_like(out);
    combine_into(sum, terms[0], terms[1], op);
    for (std::size_t i = 2; i < terms.size(); ++i) combine_into(sum, sum, terms[i], op);
    if (!in_place) out.copy_(sum);
  }
}

}  // namespace gantry
