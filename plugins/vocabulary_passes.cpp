#include "gantry/plugins/vocabulary_passes.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "gantry/core/error.h"
#include "gantry/nn/layout.h"
#include "gantry/schedule/vocabulary_actions.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using schedule::ActionKind;

constexpr const char* kTokens = "input_ids";
constexpr int kTokenDim = 1;  // dim of the tokens in [samples, tokens, ...]

nn::SplitHeadOptions with_loss(nn::SplitHeadOptions head, const VocabularyPasses::Options& options) {
  if (options.loss) head.loss = options.loss->options;
  head.limit = options.keeps_outputs ? std::numeric_limits<std::int64_t>::max() : options.logit_limit;
  return head;
}

std::vector<int> order_of(const schedule::Schedule& schedule, int rank, ActionKind kind) {
  std::vector<int> order;
  for (const auto& action : schedule.actions.at(rank))
    if (action.kind == kind) order.push_back(action.microbatch);
  return order;
}

// The microbatch that follows in the order; -1 for the last.
int next_in(const std::vector<int>& order, int microbatch) {
  const auto found = std::find(order.begin(), order.end(), microbatch);
  return found == order.end() || found + 1 == order.end() ? -1 : *(found + 1);
}

}  // namespace

VocabularyPasses::VocabularyPasses(const SharedVocabulary& shared, const std::vector<Batch>& microbatches,
                                   const schedule::Schedule& schedule, Options options)
    : shared_(shared),
      microbatches_(microbatches),
      options_(std::move(options)),
      head_options_(with_loss(shared.options_, options_)),
      combines_(options_.needs_gradients && schedule::algorithm_of(schedule) == 2),
      head_order_(order_of(schedule, shared.hidden_->rank(), ActionKind::kHeadForward)),
      embedding_order_(order_of(schedule, shared.hidden_->rank(), ActionKind::kEmbeddingBackward)),
      of_(microbatches.size()) {
  if (!head_order_.empty()) await_hidden(head_order_.front());
  if (!embedding_order_.empty()) await_embedding_gradient(embedding_order_.front());
}

bool VocabularyPasses::is_first() const { return shared_.hidden_->rank() == shared_.first_rank_; }
bool VocabularyPasses::is_last() const { return shared_.hidden_->rank() == shared_.last_rank_; }

torch::Tensor VocabularyPasses::tokens_of(int microbatch) const {
  const torch::Tensor tokens = microbatches_[microbatch].tensors.at(kTokens);
  if (tokens.is_meta())
    throw UsageError(
        {"batch",
         std::string(kTokens) + " is on the meta device, but parallel.vocabulary: pipeline needs tokens on all ranks",
         "tokens and labels on every rank of a pipeline", "pass them on every rank"});
  return tokens;
}

// [samples, tokens, hidden], for the tokens that a rank has between layers.
std::vector<std::int64_t> VocabularyPasses::hidden_shape(int microbatch) const {
  std::vector<std::int64_t> shape = microbatches_[microbatch].tensors.at(kTokens).sizes().vec();
  if (shared_.sequence_)
    shape[kTokenDim] = nn::partition_sizes(shape[kTokenDim], *shared_.sequence_)[shared_.sequence_->rank()];
  shape.push_back(shared_.head_->options.in_features());
  return shape;
}

torch::Tensor VocabularyPasses::empty_hidden(int microbatch) const {
  return torch::zeros(hidden_shape(microbatch), shared_.head_->weight.options().requires_grad(false));
}

torch::Tensor VocabularyPasses::own_tokens(const torch::Tensor& full) const {
  if (!shared_.sequence_) return full;
  const Sizes sizes = nn::partition_sizes(full.size(kTokenDim), *shared_.sequence_);
  const int rank = shared_.sequence_->rank();
  const auto begin = std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
  return full.narrow(kTokenDim, begin, sizes[rank]).contiguous();
}

torch::Tensor VocabularyPasses::full_sequence(const torch::Tensor& part, int microbatch) const {
  if (!shared_.sequence_) return part;
  const std::int64_t tokens = microbatches_[microbatch].tensors.at(kTokens).size(kTokenDim);
  return all_gather_along(*shared_.sequence_, part, kTokenDim, nn::partition_sizes(tokens, *shared_.sequence_));
}

void VocabularyPasses::run(ActionKind pass, int microbatch) {
  const torch::NoGradGuard no_graph;
  std::erase_if(under_way_, [](Sent& sent) { return sent.work.done(); });
  switch (pass) {
    case ActionKind::kEmbeddingForward:
      return embed(microbatch);
    case ActionKind::kEmbeddingBackward:
      return embed_backward(microbatch);
    case ActionKind::kHeadForward:
      return head(microbatch);
    case ActionKind::kHeadCombine:
      return head_combine(microbatch);
    case ActionKind::kHeadBackward:
      return head_backward(microbatch);
    default:
      throw InternalError(
          {"vocabulary", to_string(pass) + " is not a pass of the vocabulary", "IF, IB, S, C or T", ""});
  }
}

// --- The embedding ---

void VocabularyPasses::embed(int microbatch) {
  const torch::Tensor tokens = tokens_of(microbatch);
  Sent& sent = of_[microbatch].embedded;
  std::vector<std::int64_t> shape = tokens.sizes().vec();
  shape.push_back(shared_.embedding_->options.embedding_dim());
  sent.tensor = is_aborted_ ? torch::zeros(shape, shared_.embedding_->weight.options().requires_grad(false))
                            : shared_.embedding_->own_rows(tokens);
  sent.work = shared_.embeddings_->all_reduce(sent.tensor);
  if (!is_first()) under_way_.push_back(std::exchange(sent, {}));
}

torch::Tensor VocabularyPasses::embedded(int microbatch) {
  OfMicrobatch& of = of_[microbatch];
  of.embedded.work.wait();
  of.leaf = own_tokens(std::exchange(of.embedded.tensor, {})).detach();
  return of.leaf.requires_grad_(options_.needs_gradients);
}

void VocabularyPasses::give_embedding_gradient(int microbatch) {
  OfMicrobatch& of = of_[microbatch];
  const torch::Tensor leaf = std::exchange(of.leaf, {});
  const torch::Tensor gradient = leaf.defined() ? leaf.grad() : torch::Tensor();
  Sent& sent = of.embedding_gradient;
  std::vector<std::int64_t> shape = hidden_shape(microbatch);
  shape.back() = shared_.embedding_->options.embedding_dim();
  sent.tensor = gradient.defined() && !is_aborted_
                    ? gradient.contiguous()
                    : torch::zeros(shape, shared_.embedding_->weight.options().requires_grad(false));
  sent.work = shared_.embedding_gradients_->broadcast(sent.tensor, shared_.first_rank_);
}

// Posts the receive ahead, so that the message is in flight before it is needed.
void VocabularyPasses::await_embedding_gradient(int microbatch) {
  if (is_first()) return;
  Sent& sent = of_[microbatch].embedding_gradient;
  std::vector<std::int64_t> shape = hidden_shape(microbatch);
  shape.back() = shared_.embedding_->options.embedding_dim();
  sent.tensor = torch::zeros(shape, shared_.embedding_->weight.options().requires_grad(false));
  sent.work = shared_.embedding_gradients_->broadcast(sent.tensor, shared_.first_rank_);
}

void VocabularyPasses::embed_backward(int microbatch) {
  if (const int next = next_in(embedding_order_, microbatch); next >= 0) await_embedding_gradient(next);
  OfMicrobatch& of = of_[microbatch];
  of.embedding_gradient.work.wait();
  const torch::Tensor part = std::exchange(of.embedding_gradient.tensor, {});
  const torch::Tensor gradient = full_sequence(part, microbatch);
  if (is_aborted_) return;
  nn::Embedding embedding = shared_.embedding_;
  embedding->add_to_own_rows(tokens_of(microbatch), gradient);
}

// --- The head ---

void VocabularyPasses::give_hidden(int microbatch, const torch::Tensor& hidden) {
  Sent& sent = of_[microbatch].hidden;
  sent.tensor = hidden.defined() ? hidden.detach().contiguous() : empty_hidden(microbatch);
  sent.work = shared_.hidden_->broadcast(sent.tensor, shared_.last_rank_);
}

void VocabularyPasses::await_hidden(int microbatch) {
  if (is_last()) return;
  Sent& sent = of_[microbatch].hidden;
  sent.tensor = empty_hidden(microbatch);
  sent.work = shared_.hidden_->broadcast(sent.tensor, shared_.last_rank_);
}

// Aligned labels, [rows]. Counts them on the last stage's rank.
torch::Tensor VocabularyPasses::labels_of(int microbatch) {
  if (!options_.loss) return {};
  const LabelledLoss& loss = *options_.loss;
  const torch::Tensor given = microbatches_[microbatch].tensors.at(loss.labels);
  const auto aligned = [&](const torch::Tensor& labels) {
    return (options_.is_aligned ? labels : loss.align(labels)).reshape({-1}).to(torch::kInt64);
  };
  const torch::Tensor labels = aligned(given), known = on_host(given);
  const torch::Tensor on_cpu = known.defined() ? aligned(known) : torch::Tensor();
  nn::check_labels(labels, on_cpu, nn::counted_words(shared_.head_, loss.options), loss.options.ignore_index);
  if (is_last()) of_[microbatch].count = ((on_cpu.defined() ? on_cpu : labels) != loss.options.ignore_index).sum();
  return labels;
}

void VocabularyPasses::head(int microbatch) {
  if (const int next = next_in(head_order_, microbatch); next >= 0) await_hidden(next);
  OfMicrobatch& of = of_[microbatch];
  of.hidden.work.wait();
  const torch::Tensor input = full_sequence(std::exchange(of.hidden.tensor, {}), microbatch);
  const torch::Tensor labels = labels_of(microbatch);
  const bool computes = !is_aborted_;
  if (computes)
    of.share = nn::head_forward(shared_.head_, input, labels, head_options_,
                                combines_ ? nn::HeadWork::kInputGradient : nn::HeadWork::kStatistics);
  if (options_.keeps_outputs && computes)
    of.logits = of.share.logits.view({input.size(0), input.size(kTokenDim), of.share.logits.size(1)});
  if (!labels.defined()) return;
  const torch::Tensor mine =
      computes ? of.share.statistics
               : torch::zeros(
                     {nn::kHeadStatistics, labels.numel()},
                     input.options().dtype(input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32));
  of.statistics.tensor =
      torch::empty({shared_.statistics_->size(), nn::kHeadStatistics, labels.numel()}, mine.options());
  of.statistics.work = shared_.statistics_->all_gather(of.statistics.tensor, mine.unsqueeze(0).contiguous(),
                                                       Sizes(shared_.statistics_->size(), 1));
}

void VocabularyPasses::await_totals(int microbatch) {
  OfMicrobatch& of = of_[microbatch];
  if (!of.statistics.tensor.defined()) return;  // the totals are known, or there is no loss
  of.statistics.work.wait();
  of.totals = nn::head_totals(std::exchange(of.statistics.tensor, {}));
  if (is_last() && !is_aborted_ && of.share.counted.defined())
    of.sum = nn::head_loss(of.totals, of.share.counted, nn::counted_words(shared_.head_, head_options_.loss),
                           head_options_.loss);
}

// `part`: the part of this rank, [rows, in]; undefined: zeros.
void VocabularyPasses::send_hidden_gradient(int microbatch, const torch::Tensor& part) {
  std::vector<std::int64_t> shape = microbatches_[microbatch].tensors.at(kTokens).sizes().vec();
  shape.push_back(shared_.head_->options.in_features());
  Sent& sent = of_[microbatch].hidden_gradient;
  sent.tensor =
      part.defined() ? part.view(shape) : torch::zeros(shape, shared_.head_->weight.options().requires_grad(false));
  sent.work = shared_.hidden_gradients_->all_reduce(sent.tensor);
  if (!is_last()) under_way_.push_back(std::exchange(sent, {}));
}

void VocabularyPasses::head_combine(int microbatch) {
  await_totals(microbatch);
  OfMicrobatch& of = of_[microbatch];
  const bool computes = !is_aborted_ && of.share.by_exponentials.defined();
  send_hidden_gradient(microbatch,
                       computes ? nn::head_input_part(shared_.head_, of.share, of.totals, options_.seed, head_options_)
                                : torch::Tensor());
}

void VocabularyPasses::head_backward(int microbatch) {
  await_totals(microbatch);
  OfMicrobatch& of = of_[microbatch];
  const nn::HeadShare share = std::exchange(of.share, {});
  const nn::HeadTotals totals = std::exchange(of.totals, {});
  const bool computes = !is_aborted_ && share.statistics.defined();
  if (!combines_)
    send_hidden_gradient(microbatch, computes
                                         ? nn::head_backward(shared_.head_, share, totals, options_.seed, head_options_)
                                         : torch::Tensor());
  else if (computes)
    nn::head_weight_backward(shared_.head_, share, totals, options_.seed, head_options_);
}

torch::Tensor VocabularyPasses::hidden_gradient(int microbatch) {
  Sent& sent = of_[microbatch].hidden_gradient;
  sent.work.wait();
  return own_tokens(std::exchange(sent.tensor, {}));
}

VocabularyPasses::Losses VocabularyPasses::losses() {
  Losses losses;
  for (std::size_t i = 0; i < of_.size(); ++i) {
    await_totals(static_cast<int>(i));  // without a backward
    if (of_[i].sum.defined()) losses.sums.push_back(of_[i].sum);
    if (of_[i].count.defined()) losses.counts.push_back(of_[i].count);
  }
  return losses;
}

TensorDict VocabularyPasses::outputs() {
  std::vector<torch::Tensor> all;
  const ShardSpec& words = shared_.head_->weight_placement();
  Sizes sizes;
  for (int rank = 0; rank < shared_.outputs_->size(); ++rank) sizes.push_back(words.local_size(rank));
  for (const OfMicrobatch& of : of_)
    all.push_back(all_gather_along(*shared_.outputs_, of.logits.contiguous(), 2, sizes));
  return {{shared_.output_, torch::cat(all)}};
}

}  // namespace gantry
