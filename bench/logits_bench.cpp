// Head and cross entropy of one microbatch, forward and backward: with full logits, and with logits in tiles.
//   logits_bench [TOKENS [HIDDEN [VOCABULARY]]]
// Prints the median of 3 pairs of runs in seconds of one processor, the peak of the tensors' memory in addition to
// weight, input and the gradient of the weight, and both as a ratio.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <vector>

#include "gantry/core/config/logit_limit.h"
#include "gantry/nn/deferred_logits.h"
#include "gantry/nn/forward.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/memory_meter.h"

namespace {

constexpr int kPairs = 3;

struct Sizes {
  std::int64_t tokens = 512, hidden = 512, vocabulary = 128256;
};

struct Cost {
  double seconds = 0, megabytes = 0;
};

class HeadOfOneMicrobatch {
 public:
  HeadOfOneMicrobatch(const Sizes& sizes, torch::ScalarType type, double ignored)
      : head_(torch::nn::LinearOptions(sizes.hidden, sizes.vocabulary).bias(false)),
        input_(torch::randn({sizes.tokens, sizes.hidden}).to(type).requires_grad_()),
        labels_(torch::randint(sizes.vocabulary, {sizes.tokens}, torch::kInt64)) {
    head_->to(type);
    labels_.narrow(0, 0, static_cast<std::int64_t>(ignored * static_cast<double>(sizes.tokens))).fill_(-100);
    head_->weight.mutable_grad() = torch::zeros_like(head_->weight).detach();
  }

  Cost run(std::int64_t limit) {
    input_.mutable_grad().reset();
    gantry::MemoryMeter meter;
    const std::clock_t begin = std::clock();
    gantry::nn::DeferredLogits logits{.rows = input_.size(0), .limit = limit};
    gantry::TensorDict made;
    {
      const gantry::ForwardScope scope({.logits = limit > 0 ? &logits : nullptr});
      made = gantry::nn::head_output(head_, input_);
    }
    if (logits.are_deferred()) logits.hidden = made.at("hidden");
    const torch::Tensor loss = logits.are_deferred() ? gantry::nn::cross_entropy(logits, labels_).sum
                                                     : gantry::nn::cross_entropy(made.at("logits"), labels_).sum;
    loss.backward();
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    return {seconds, static_cast<double>(meter.peak_bytes()) / (1 << 20)};
  }

 private:
  gantry::nn::Linear head_;
  torch::Tensor input_, labels_;
};

Cost median(std::vector<Cost> costs) {
  std::sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.seconds < b.seconds; });
  return costs[costs.size() / 2];
}

void print_row(const Sizes& sizes, torch::ScalarType type, double ignored) {
  HeadOfOneMicrobatch head(sizes, type, ignored);
  std::vector<Cost> full, tiles;
  head.run(0), head.run(gantry::kLogitLimit);  // the first runs allocate
  for (int pair = 0; pair < kPairs; ++pair) {
    full.push_back(head.run(0));
    tiles.push_back(head.run(gantry::kLogitLimit));
  }
  const Cost whole = median(full), deferred = median(tiles);
  fmt::print(
      "{:9} {:3.0f}% ignored: full {:6.2f} s {:7.0f} MB   tiles {:6.2f} s {:7.0f} MB   time x {:.2f}, memory x "
      "{:.3f}\n",
      c10::toString(type), 100 * ignored, whole.seconds, whole.megabytes, deferred.seconds, deferred.megabytes,
      deferred.seconds / whole.seconds, deferred.megabytes / whole.megabytes);
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  if (argc > 1) sizes.tokens = std::atoll(argv[1]);
  if (argc > 2) sizes.hidden = std::atoll(argv[2]);
  if (argc > 3) sizes.vocabulary = std::atoll(argv[3]);
  torch::set_num_threads(1);
  fmt::print("{} tokens, hidden size {}, vocabulary {}\n", sizes.tokens, sizes.hidden, sizes.vocabulary);
  for (const auto type : {torch::kFloat32, torch::kBFloat16})
    for (const double ignored : {0.0, 0.5}) print_row(sizes, type, ignored);
  return 0;
}
