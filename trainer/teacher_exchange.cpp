#include "gantry/trainer/teacher_exchange.h"

#include <algorithm>
#include <numeric>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kMessageBytes = std::int64_t{64} << 20;  // the largest message, unless one row has more

// The rows [begin, end) of a block, as a view.
torch::Tensor rows_of(const torch::Tensor& tensor, const Block& block, std::int64_t begin, std::int64_t end) {
  torch::Tensor rows = tensor.narrow(0, block.begin[0] + begin, end - begin);
  for (std::size_t dim = 1; dim < block.begin.size(); ++dim)
    rows = rows.narrow(static_cast<std::int64_t>(dim), block.begin[dim], block.size[dim]);
  return rows;
}

std::int64_t total(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

Sizes starts_of(const Sizes& sizes) {
  Sizes starts(sizes.size(), 0);
  std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), std::int64_t{0});
  return starts;
}

// The rows [begin, end) of each block, which are exchanged together.
class ExchangedRows {
 public:
  ExchangedRows(const BlockExchange& exchange, std::int64_t begin, std::int64_t end, ProcessGroup& group)
      : exchange_(exchange), begin_(begin), end_(end), group_(group), sent_(group.size(), 0), received_(sent_) {
    visit([&](const BlockMove& move, std::int64_t until) {
      const std::int64_t elements = (until - begin_) * (elements_of(move.source.size) / move.source.size[0]);
      if (move.from == group_.rank()) sent_[move.to] += elements;
      if (move.to == group_.rank()) received_[move.from] += elements;
    });
  }

  void run(const torch::Tensor& source, torch::Tensor& target) {
    const torch::Tensor in = torch::empty({total(sent_)}, target.options());
    torch::Tensor out = torch::empty({total(received_)}, target.options());
    Sizes places = starts_of(sent_);
    visit([&](const BlockMove& move, std::int64_t until) {
      if (move.from != group_.rank()) return;
      const torch::Tensor rows = rows_of(source, move.source, begin_, until);
      in.narrow(0, places[move.to], rows.numel()).view(rows.sizes()).copy_(rows);
      places[move.to] += rows.numel();
    });
    group_.all_to_all(out, in, received_, sent_).wait();
    places = starts_of(received_);
    visit([&](const BlockMove& move, std::int64_t until) {
      if (move.to != group_.rank()) return;
      const torch::Tensor rows = rows_of(target, move.target, begin_, until);
      rows.copy_(out.narrow(0, places[move.from], rows.numel()).view(rows.sizes()));
      places[move.from] += rows.numel();
    });
  }

 private:
  // Calls `take(move, end)` for the moves that have these rows.
  template <class Take>
  void visit(const Take& take) const {
    for (const BlockMove& move : exchange_.moves)
      if (begin_ < move.source.size[0]) take(move, std::min(end_, move.source.size[0]));
  }

  const BlockExchange& exchange_;
  std::int64_t begin_, end_;
  ProcessGroup& group_;
  Sizes sent_, received_;  // elements by rank
};

}  // namespace

std::vector<BlockMove> moves_of_rank(int rank, const std::vector<RankBox>& held, const std::vector<RankBox>& needed) {
  std::vector<BlockMove> moves;
  for (const RankBox& from : held)
    for (const RankBox& to : needed) {
      if (from.rank != rank && to.rank != rank) continue;
      common_blocks(from.box, to.box, [&](const Block& source, const Block& target) {
        moves.push_back({from.rank, to.rank, source, target});
      });
    }
  return moves;
}

void exchange_blocks(const BlockExchange& exchange, const torch::Tensor& source, torch::Tensor& target,
                     ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  const std::int64_t rows = std::max<std::int64_t>(1, kMessageBytes / std::max<std::int64_t>(1, exchange.row_bytes));
  for (std::int64_t begin = 0; begin < exchange.most_rows; begin += rows)
    ExchangedRows(exchange, begin, begin + rows, group).run(source, target);
}

}  // namespace gantry
