#include "gantry/nn/expert_exchange.h"

#include <numeric>
#include <utility>

#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::nn {

namespace {

std::int64_t sum(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

}  // namespace

// An exchange of rows. `sent` and `received`: numbers of rows per rank. Gradients are sent in the opposite
// direction.
struct TokenExchange : torch::CustomClassHolder {
  TokenExchange(ProcessGroup* over, Sizes go, Sizes come)
      : group(over), sent(std::move(go)), received(std::move(come)) {}
  void start(const torch::Tensor& rows, const Sizes& come, const Sizes& go) {
    arriving = torch::empty({sum(come), rows.size(1)}, rows.options().requires_grad(false));
    work = group->all_to_all(arriving, rows.contiguous(), come, go);
  }
  torch::Tensor arrive() {
    std::exchange(work, {}).wait();
    return std::exchange(arriving, {});
  }

  ProcessGroup* group;
  Sizes sent, received;
  torch::Tensor order, back;  // the order of the result, and its inverse; undefined: the order of arrival
  torch::Tensor arriving;
  Work work;
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// A permutation of rows. Its gradient is gathered by the inverse permutation, and never scattered.
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

TokenExchange& saved_travel(AutogradContext* context) {
  return static_cast<TokenExchange&>(*context->saved_data["travel"].toCapsule());
}

// An exchange is two nodes of the graph, so that other nodes can run between them. The tensor that connects
// them has no values, because the rows are in flight.
struct Depart : torch::autograd::Function<Depart> {
  static Variable forward(AutogradContext* context, const Variable& rows,
                          const c10::intrusive_ptr<TokenExchange>& travel) {
    context->saved_data["travel"] = c10::IValue::make_capsule(travel);
    travel->start(rows, travel->received, travel->sent);
    return torch::empty({0}, rows.options());
  }
  static variable_list backward(AutogradContext* context, const variable_list&) {
    return {saved_travel(context).arrive(), {}};
  }
};

struct Arrive : torch::autograd::Function<Arrive> {
  static Variable forward(AutogradContext* context, const Variable& /*ticket*/,
                          const c10::intrusive_ptr<TokenExchange>& travel) {
    context->saved_data["travel"] = c10::IValue::make_capsule(travel);
    return travel->arrive();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    TokenExchange& travel = saved_travel(context);
    travel.start(gradients[0], travel.sent, travel.received);
    return {torch::empty({0}, gradients[0].options()), {}};
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
  // Rows arrive sorted by source rank, then by expert.
  const std::int64_t rows = sum(exchange.received);
  torch::Tensor by_expert = torch::empty({rows}, torch::kInt64), by_rank = torch::empty({rows}, torch::kInt64);
  auto *next = by_expert.data_ptr<std::int64_t>(), *back = by_rank.data_ptr<std::int64_t>();
  Sizes begin(group.size());  // for each source rank, the first row of the next expert
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

PendingTokens::PendingTokens(torch::Tensor ticket, c10::intrusive_ptr<TokenExchange> travel) noexcept
    : ticket_(std::move(ticket)), travel_(std::move(travel)) {}
PendingTokens::PendingTokens(PendingTokens&& other) noexcept = default;
PendingTokens& PendingTokens::operator=(PendingTokens&& other) noexcept = default;
PendingTokens::~PendingTokens() = default;

torch::Tensor PendingTokens::wait() {
  const torch::Tensor arrived = Arrive::apply(ticket_, travel_);
  return travel_->order.defined() ? Permute::apply(arrived, travel_->order, travel_->back) : arrived;
}

PendingTokens rows_to_experts(const torch::Tensor& rows, const ExpertExchange& exchange) {
  const auto travel = c10::make_intrusive<TokenExchange>(exchange.group, exchange.sent, exchange.received);
  travel->order = exchange.by_expert;
  travel->back = exchange.by_rank;
  return {Depart::apply(rows, travel), travel};
}

PendingTokens rows_from_experts(const torch::Tensor& rows, const ExpertExchange& exchange) {
  const auto travel = c10::make_intrusive<TokenExchange>(exchange.group, exchange.received, exchange.sent);
  const torch::Tensor by_rank = Permute::apply(rows, exchange.by_rank, exchange.by_expert);
  return {Depart::apply(by_rank, travel), travel};
}

}  // namespace gantry::nn
