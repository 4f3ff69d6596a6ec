#include "gantry/nn/expert_exchange.h"

#include <numeric>

#include <torch/torch.h>

#include "gantry/core/planted.h"
#include "gantry/tensors/host_copy.h"

namespace gantry::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

std::int64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

torch::Tensor travelled(ProcessGroup& group, const torch::Tensor& rows, const Sizes& received, const Sizes& sent) {
  torch::Tensor arrived = torch::empty({sum(received), rows.size(1)}, rows.options().requires_grad(false));
  group.all_to_all(arrived, rows.contiguous(), received, sent).wait();
  return arrived;
}

// A permutation of rows, whose gradient is the other way round: gathered, and never scattered.
struct Permute : torch::autograd::Function<Permute> {
  static Variable forward(AutogradContext* context, const Variable& rows, const torch::Tensor& order,
                          const torch::Tensor& back) {
    context->save_for_backward({back});
    return rows.index_select(0, order);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0].index_select(0, context->get_saved_variables()[0]), {}, {}};
  }
};

// Rows by rank: `sent` go to each, `received` come from each; their gradients go back.
struct Travel : torch::autograd::Function<Travel> {
  static Variable forward(AutogradContext* context, const Variable& rows, ProcessGroup* group, const Sizes& sent,
                          const Sizes& received) {
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    context->saved_data["sent"] = sent;
    context->saved_data["received"] = received;
    return travelled(*group, rows, received, sent);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    return {travelled(*group, gradients[0], context->saved_data["sent"].toIntVector(),
                      context->saved_data["received"].toIntVector()),
            {},
            {},
            {}};
  }
};

// counts[rank][expert] of all ranks.
std::vector<Sizes> counts_of_all(ProcessGroup& group, const Sizes& counts) {
  const auto experts = static_cast<std::int64_t>(counts.size());
  torch::Tensor all = torch::empty({group.size(), experts}, torch::kInt64);
  group.all_gather(all, torch::tensor(counts, torch::kInt64).view({1, experts}), Sizes(group.size(), 1)).wait();
  const auto* first = all.const_data_ptr<std::int64_t>();
  std::vector<Sizes> of_all;
  for (int rank = 0; rank < group.size(); ++rank)
    of_all.emplace_back(first + rank * experts, first + (rank + 1) * experts);
  return of_all;
}

std::int64_t rows_of(const Sizes& counts, const Range& experts) {
  return std::accumulate(counts.begin() + experts.begin, counts.begin() + experts.end, std::int64_t{0});
}

}  // namespace

ExpertExchange agree_on_rows(ProcessGroup& group, const std::vector<std::int64_t>& counts,
                             const std::vector<Range>& held, torch::Device device) {
  const auto of_all = counts_of_all(group, counts);
  const Range mine = held[group.rank()];
  ExpertExchange exchange{.group = &group, .sent = {}, .received = {}, .by_expert = {}, .by_rank = {}, .counts = {}};
  for (int rank = 0; rank < group.size(); ++rank) {
    exchange.sent.push_back(rows_of(counts, held[rank]));
    exchange.received.push_back(rows_of(of_all[rank], mine));
  }
  // Rows arrive rank by rank, and from each by expert.
  const std::int64_t rows = sum(exchange.received);
  torch::Tensor by_expert = torch::empty({rows}, torch::kInt64), by_rank = torch::empty({rows}, torch::kInt64);
  auto *next = by_expert.data_ptr<std::int64_t>(), *back = by_rank.data_ptr<std::int64_t>();
  Sizes begin(group.size());  // of the next expert's rows from each rank
  for (int rank = 1; rank < group.size(); ++rank) begin[rank] = begin[rank - 1] + exchange.received[rank - 1];
  std::int64_t place = 0;
  for (std::int64_t expert = mine.begin; expert < mine.end; ++expert) {
    exchange.counts.push_back(0);
    for (int rank = 0; rank < group.size(); ++rank)
      for (std::int64_t left = of_all[rank][expert]; left > 0; --left, ++place, ++exchange.counts.back()) {
        next[place] = begin[rank]++;
        back[next[place]] = place;
      }
  }
  exchange.by_expert = device.is_cpu() ? by_expert : to_device(by_expert, device);
  exchange.by_rank = device.is_cpu() ? by_rank : to_device(by_rank, device);
  return exchange;
}

torch::Tensor rows_to_experts(const torch::Tensor& rows, const ExpertExchange& exchange) {
  const torch::Tensor arrived = Travel::apply(rows, exchange.group, exchange.sent, exchange.received);
  if (planted("rows-stay-by-rank")) return arrived;
  return Permute::apply(arrived, exchange.by_expert, exchange.by_rank);
}

torch::Tensor rows_from_experts(const torch::Tensor& rows, const ExpertExchange& exchange) {
  const torch::Tensor by_rank =
      planted("rows-stay-by-rank") ? rows : Permute::apply(rows, exchange.by_rank, exchange.by_expert);
  return Travel::apply(by_rank, exchange.group, exchange.received, exchange.sent);
}

}  // namespace gantry::nn
