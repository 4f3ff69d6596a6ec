// A head whose words lie over ranks against the whole one: loss and gradients in float64.
#include "gantry/nn/split_head.h"

#include <deque>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "gantry/comm/process_group.h"
#include "gantry/nn/cross_entropy.h"

namespace gantry::testing {
namespace {

// A place among so many ranks that never communicate.
class Place final : public ProcessGroup {
 public:
  Place(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Work send(const torch::Tensor&, int, const Tag&) override { return refuse(); }
  Work hand_over(const torch::Tensor&, int, const Tag&) override { return refuse(); }
  Work recv(const TensorSpec&, int, const Tag&) override { return refuse(); }
  Work start(const Collective&) override { return refuse(); }
  void abort(const std::string&) override {}

 private:
  static Work refuse() {
    ADD_FAILURE() << "it communicates";
    return {};
  }
  int rank_, size_;
};

struct HeadCase {
  int ranks = 3;
  std::int64_t words = 29;
  nn::SplitHeadOptions options = {};
  double inputs = 1;  // are that large
  bool bias = false;
};

nn::Linear head_of(const torch::Tensor& weight, const torch::Tensor& bias) {
  nn::Linear head(torch::nn::LinearOptions(weight.size(1), weight.size(0)).bias(bias.defined()));
  const torch::NoGradGuard no_grad;
  head->to(torch::kFloat64);
  head->weight.copy_(weight);
  if (bias.defined()) head->bias.copy_(bias);
  return head;
}

void expect_near(const torch::Tensor& expected, const torch::Tensor& actual, double tolerance) {
  EXPECT_LE((expected - actual).abs().max().item<double>(), tolerance * expected.abs().max().item<double>());
}

void expect_one_heads_numbers(const HeadCase& what, double tolerance) {
  torch::manual_seed(3);
  const nn::SplitHeadOptions& options = what.options;
  const torch::Tensor input = what.inputs * torch::randn({17, 8}, torch::kFloat64);
  const torch::Tensor weight = torch::randn({what.words, 8}, torch::kFloat64);
  const torch::Tensor bias = what.bias ? torch::randn({what.words}, torch::kFloat64) : torch::Tensor();
  const std::int64_t counted = options.loss.vocabulary > 0 ? options.loss.vocabulary : what.words;
  torch::Tensor labels = torch::arange(17) * 7 % counted;
  labels[3] = -100;

  nn::Linear whole = head_of(weight, bias);
  const torch::Tensor leaf = input.clone().requires_grad_();
  torch::Tensor logits = whole(leaf) * options.scale;
  if (options.soft_cap > 0) logits = (logits / options.soft_cap).tanh() * options.soft_cap;
  const Loss expected = nn::cross_entropy(logits, labels, options.loss);
  (expected.sum * 0.3).backward();

  std::deque<Place> places;
  std::vector<nn::Linear> heads;
  std::vector<nn::HeadShare> shares;
  std::vector<torch::Tensor> statistics, weights, biases;
  for (int rank = 0; rank < what.ranks; ++rank) {
    heads.push_back(head_of(weight, bias));
    heads.back()->shard(Column{}, places.emplace_back(rank, what.ranks));
    shares.push_back(nn::head_forward(heads.back(), input, labels, options));
    statistics.push_back(shares.back().statistics);
  }
  const nn::HeadTotals totals = nn::head_totals(torch::stack(statistics));
  expect_near(expected.sum, nn::head_loss(totals, shares[0].counted, counted, options.loss), tolerance);
  torch::Tensor input_gradient;
  for (int rank = 0; rank < what.ranks; ++rank) {
    const torch::Tensor part = nn::head_backward(heads[rank], shares[rank], totals, 0.3, options);
    input_gradient = rank == 0 ? part : input_gradient + part;
    weights.push_back(heads[rank]->weight.grad());
    if (what.bias) biases.push_back(heads[rank]->bias.grad());
  }
  expect_near(leaf.grad(), input_gradient, tolerance);
  expect_near(whole->weight.grad(), torch::cat(weights), tolerance);
  if (what.bias) expect_near(whole->bias.grad(), torch::cat(biases), tolerance);
}

TEST(SplitHead, EqualsOneHead) {
  expect_one_heads_numbers({}, 1e-13);
  expect_one_heads_numbers({.bias = true}, 1e-13);
  expect_one_heads_numbers({.ranks = 1}, 1e-13);
}

TEST(SplitHead, WithSmoothingZLossScaleAndCap) {
  HeadCase what;
  what.options.loss.label_smoothing = 0.1;
  what.options.loss.z_loss = 1e-3;
  expect_one_heads_numbers(what, 1e-13);
  what.options.scale = 0.7;
  what.options.soft_cap = 2;
  what.bias = true;
  expect_one_heads_numbers(what, 1e-12);
}

TEST(SplitHead, PaddingAndARankOfPaddingAlone) {
  HeadCase what;
  what.options.loss.vocabulary = 20;
  what.options.loss.label_smoothing = 0.1;
  expect_one_heads_numbers(what, 1e-13);
  what.words = 3;
  what.options.loss.vocabulary = 1;
  expect_one_heads_numbers(what, 1e-13);
}

TEST(SplitHead, LargeInputs) {
  expect_one_heads_numbers({.inputs = 30}, 1e-12);
  expect_one_heads_numbers({.inputs = 300}, 1e-12);
}

}  // namespace
}  // namespace gantry::testing
