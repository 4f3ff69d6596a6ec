#include "gantry/generation/token_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "gantry/tensors/libtorch.h"

namespace gantry::generation {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Collects numbers for tokens in individual rows of `scores`, and adds them.
class RowBiases {
 public:
  RowBiases(torch::Tensor& scores, std::int64_t first_column) : scores_(scores), first_(first_column) {}
  void add(std::int64_t row, std::int64_t token, double bias) {
    if (token < first_ || token >= first_ + scores_.size(1)) return;
    rows_.push_back(row);
    columns_.push_back(token - first_);
    biases_.push_back(bias);
  }
  void apply() {
    if (rows_.empty()) return;
    const auto index = [&](const std::vector<std::int64_t>& values) {
      return std::optional(torch::tensor(values, torch::kInt64).to(scores_.device()));
    };
    scores_.index_put_({index(rows_), index(columns_)}, torch::tensor(biases_, torch::kFloat64).to(scores_.options()),
                       /*accumulate=*/true);
  }

 private:
  torch::Tensor& scores_;
  std::int64_t first_;
  std::vector<std::int64_t> rows_, columns_;
  std::vector<double> biases_;
};

}  // namespace

void forbid(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first) {
  for (const std::int64_t token : tokens)
    if (token >= first && token < first + scores.size(1)) scores.select(1, token - first).fill_(kNever);
}

void keep_only(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first) {
  torch::Tensor others = torch::ones({scores.size(1)}, torch::kBool);
  for (const std::int64_t token : tokens)
    if (token >= first && token < first + scores.size(1)) others[token - first].fill_(false);
  scores.masked_fill_(others.to(scores.device()), kNever);
}

void forbid_repeated_runs(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, std::int64_t size,
                          std::int64_t first) {
  RowBiases forbidden(scores, first);
  for (std::size_t row = 0; row < texts.size(); ++row) {
    const TokenIds& text = *texts[row];
    const auto before = size - 1, length = static_cast<std::int64_t>(text.size());
    for (std::int64_t start = 0; start + size <= length; ++start)
      if (std::equal(text.end() - before, text.end(), text.begin() + start))
        forbidden.add(static_cast<std::int64_t>(row), text[start + before], kNever);
  }
  forbidden.apply();
}

void add_biases(torch::Tensor& scores, const std::vector<const TokenIds*>& texts,
                const std::vector<SequenceBias>& biases, std::int64_t first) {
  RowBiases added(scores, first);
  for (std::size_t row = 0; row < texts.size(); ++row)
    for (const auto& [tokens, bias] : biases) {
      const TokenIds& text = *texts[row];
      const auto before = static_cast<std::int64_t>(tokens.size()) - 1;
      if (static_cast<std::int64_t>(text.size()) >= before &&
          std::equal(text.end() - before, text.end(), tokens.begin()))
        added.add(static_cast<std::int64_t>(row), tokens.back(), bias);
    }
  added.apply();
}

void force(torch::Tensor& scores, const std::vector<std::int64_t>& tokens, std::int64_t first) {
  scores.fill_(kNever);
  for (const std::int64_t token : tokens)
    if (token >= first && token < first + scores.size(1)) scores.select(1, token - first).zero_();
}

void forbid_padding(torch::Tensor& scores, std::int64_t vocabulary, std::int64_t first) {
  if (vocabulary <= 0 || vocabulary >= first + scores.size(1)) return;
  const std::int64_t kept = std::max<std::int64_t>(0, vocabulary - first);
  scores.narrow(1, kept, scores.size(1) - kept).fill_(kNever);
}

void penalise_repetition(torch::Tensor& scores, const std::vector<const TokenIds*>& texts, double penalty) {
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    TokenIds tokens = *texts[row];
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    const torch::Tensor index = torch::tensor(tokens, torch::kInt64);
    torch::Tensor mine = scores[row];
    const torch::Tensor had = mine.index_select(0, index);
    mine.index_copy_(0, index, torch::where(had < 0, had * penalty, had / penalty));
  }
}

void keep_top_k(torch::Tensor& scores, std::int64_t top_k) {
  if (top_k <= 0 || top_k >= scores.size(1)) return;
  const torch::Tensor least = std::get<0>(scores.topk(top_k, 1)).narrow(1, top_k - 1, 1);
  scores.masked_fill_(scores < least, kNever);
}

void keep_top_p(torch::Tensor& scores, double top_p) {
  if (top_p >= 1) return;
  const auto [sorted, order] = scores.sort(1, /*descending=*/false);
  torch::Tensor is_tail = sorted.softmax(1).cumsum(1) <= 1 - top_p;
  is_tail.select(1, is_tail.size(1) - 1).fill_(false);
  scores.masked_fill_(torch::zeros_like(is_tail).scatter_(1, order, is_tail), kNever);
}

void keep_min_p(torch::Tensor& scores, double min_p) {
  if (min_p <= 0) return;
  const torch::Tensor shares = scores.softmax(1), most = shares.amax(1, /*keepdim=*/true);
  scores.masked_fill_(shares < min_p * most, kNever);
}

void keep_typical(torch::Tensor& scores, double typical_p) {
  if (typical_p >= 1) return;
  const torch::Tensor logarithms = scores.log_softmax(1);
  const torch::Tensor entropy = -(logarithms * logarithms.exp()).nansum(1, /*keepdim=*/true);
  const auto [sorted, order] = (-logarithms - entropy).abs().sort(1, /*descending=*/false);
  const torch::Tensor sums = scores.gather(1, order).softmax(1).cumsum(1);
  const torch::Tensor last = (sums < typical_p).sum(1, /*keepdim=*/true).clamp_max(scores.size(1) - 1);
  torch::Tensor is_far = sorted > sorted.gather(1, last);
  is_far.select(1, 0).fill_(false);
  scores.masked_fill_(torch::zeros_like(is_far).scatter_(1, order, is_far), kNever);
}

std::int64_t drawn_token(const torch::Tensor& row, double uniform) {
  const torch::Tensor ends = row.to(torch::kFloat64).softmax(0).cumsum(0).contiguous();
  const double* begin = ends.data_ptr<double>();
  const double* end = begin + ends.numel();
  const double* found = std::upper_bound(begin, end, uniform * end[-1]);
  // Rounding can make the product equal to the last sum. The last token with a probability above 0 is then
  // chosen.
  if (found == end) found = std::lower_bound(begin, end, end[-1]);
  return found - begin;
}

torch::Tensor gather_columns(const torch::Tensor& logits, const SplitDim& split) {
  if (!split.placement.sharded()) return logits;
  Sizes sizes;
  for (int rank = 0; rank < split.group->size(); ++rank) sizes.push_back(split.placement.local_size(rank));
  return all_gather_along(*split.group, logits, -1, sizes);
}

std::int64_t first_column(const SplitDim& split) {
  return split.placement.sharded() ? split.placement.ranges(split.group->rank()).front().begin : 0;
}

std::vector<BestToken> best_tokens(const torch::Tensor& scores, const SplitDim& split) {
  const std::int64_t rows = scores.size(0);
  torch::Tensor mine = torch::full({1, rows, 2}, kNever, scores.options().dtype(torch::kFloat64));
  if (scores.size(1) > 0) {
    const auto [values, columns] = scores.max(1);
    mine.select(2, 0).copy_(values);
    mine.select(2, 1).copy_(columns + first_column(split));
  }
  torch::Tensor all = mine;
  if (split.placement.sharded()) {
    const int ranks = split.group->size();
    all = torch::empty({ranks, rows, 2}, mine.options());
    split.group->all_gather(all, mine, Sizes(ranks, 1)).wait();
  }
  all = all.to(torch::kCPU);
  const auto at = all.accessor<double, 3>();
  std::vector<BestToken> tokens;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t best = 0;
    for (std::int64_t rank = 1; rank < all.size(0); ++rank)
      if (!std::isnan(at[best][row][0]) && !(at[rank][row][0] <= at[best][row][0])) best = rank;
    const bool is_token = std::isfinite(at[best][row][1]);
    tokens.push_back({is_token ? static_cast<std::int64_t>(at[best][row][1]) : 0, at[best][row][0]});
  }
  return tokens;
}

}  // namespace gantry::generation
