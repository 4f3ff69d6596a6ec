// The rate of the operators of recurrent mixers (nn/mixers), forward and backward of one row of 2,048 tokens in
// float32. Operators that consist of products are compared with batched products of their block sizes, in FLOPs of
// their chunked form. The selective scan is compared with LibTorch's exp, in exponentials. The others are compared with
// a copy of memory, in bytes of their inputs, outputs and gradients. Both are measured in turns within one run with one
// thread, by its processor time, so that other work of the machine matters little. A JSON line has the median of the
// ratios.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <vector>

#include "gantry/nn/mixers/causal_convolution.h"
#include "gantry/nn/mixers/gated_delta.h"
#include "gantry/nn/mixers/kimi_delta.h"
#include "gantry/nn/mixers/lightning.h"
#include "gantry/nn/mixers/rg_lru.h"
#include "gantry/nn/mixers/selective_scan.h"
#include "gantry/nn/mixers/ssd.h"
#include "gantry/tensors/libtorch.h"

namespace {

using namespace gantry;

constexpr std::int64_t kTokens = 2048, kHeads = 4, kChannels = 1024, kStates = 16;
constexpr int kRounds = 9;

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double seconds_of(const std::function<void()>& call) {
  const double start = processor_seconds();
  call();
  return processor_seconds() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

torch::Tensor leaf(torch::IntArrayRef shape, double low = -1, double high = 1) {
  return torch::empty(shape).uniform_(low, high).requires_grad_();
}

// An operator with the work of its forward and backward.
struct Row {
  const char* name;
  std::int64_t size;  // features per head
  double work;        // FLOPs, exponentials or bytes
  std::vector<torch::Tensor> inputs;
  std::function<torch::Tensor()> forward;
};

// `peer` does `peer_work`, in the unit of the row, in one call.
void compare(const Row& row, const std::function<void()>& peer, double peer_work) {
  const torch::Tensor of_out = torch::rand_like(row.forward());
  const auto operate = [&] { torch::autograd::grad({row.forward()}, row.inputs, {of_out}); };
  operate();
  peer();
  std::vector<double> seconds, ratios;
  for (int round = 0; round < kRounds; ++round) {
    seconds.push_back(seconds_of(operate));
    ratios.push_back(row.work / seconds.back() / (peer_work / seconds_of(peer)));
  }
  std::printf("{\"op\": \"%s\", \"size\": %lld, \"seconds\": %.3e, \"rate\": %.3e, \"of_peer\": %.3f}\n", row.name,
              static_cast<long long>(row.size), median(seconds), row.work / median(seconds), median(ratios));
  std::fflush(stdout);
}

// Scores of all chunks: the matrix multiplication that all of these operators contain.
void compare_with_products(const Row& row) {
  const std::int64_t chunks = kHeads * kTokens / nn::kChunkTokens;
  const torch::Tensor left = torch::rand({chunks, nn::kChunkTokens, row.size}),
                      right = torch::rand({chunks, row.size, nn::kChunkTokens});
  torch::Tensor out = torch::empty({chunks, nn::kChunkTokens, nn::kChunkTokens});
  constexpr int kCalls = 8;
  const double flops = 2.0 * static_cast<double>(chunks * nn::kChunkTokens * nn::kChunkTokens * row.size);
  compare(
      row,
      [&] {
        for (int i = 0; i < kCalls; ++i) torch::bmm_out(out, left, right);
      },
      kCalls * flops);
}

void compare_with_copies(const Row& row) {
  const torch::Tensor from = torch::rand({kTokens * kChannels * 4});
  torch::Tensor to = torch::empty_like(from);
  compare(
      row, [&] { to.copy_(from); }, 2.0 * static_cast<double>(from.nbytes()));
}

void compare_with_exponentials(const Row& row) {
  const torch::Tensor from = torch::rand({kTokens * kChannels * 4});
  torch::Tensor to = torch::empty_like(from);
  compare(
      row, [&] { torch::exp_out(to, from); }, static_cast<double>(from.numel()));
}

void heads_of(std::int64_t size) {
  const double d = static_cast<double>(size), c = static_cast<double>(nn::kChunkTokens);
  // A backward has twice the multiplications.
  const double tokens = 3.0 * static_cast<double>(kTokens * kHeads);
  const torch::Tensor query = leaf({1, kTokens, kHeads, size}), key = leaf({1, kTokens, kHeads, size}),
                      value = leaf({1, kTokens, kHeads, size}), beta = leaf({1, kTokens, kHeads}, 0, 1),
                      decay = leaf({1, kTokens, kHeads}, -0.1, 0), slope = leaf({kHeads}, 0.01, 0.1),
                      decays = leaf({1, kTokens, kHeads, size}, -0.1, 0), dt = leaf({1, kTokens, kHeads}, 0.01, 0.1);
  const double delta = tokens * (8 * c * d + 6 * d * d), linear = tokens * (4 * c * d + 4 * d * d);
  compare_with_products({"gated_delta", size, delta, {query, key, value, decay, beta}, [=] {
                           return nn::gated_delta({query, key, value, decay, beta}).out;
                         }});
  compare_with_products({"kimi_delta", size, delta, {query, key, value, decays, beta}, [=] {
                           return nn::kimi_delta({query, key, value, decays, beta}).out;
                         }});
  compare_with_products({"ssd", size, linear, {query, key, value, dt, slope}, [=] {
                           return nn::ssd({value, dt, -slope, key, query, torch::Tensor()}).out;
                         }});
  compare_with_products({"lightning", size, linear, {query, key, value}, [=] {
                           return nn::lightning_attention({query, key, value, slope}).out;
                         }});
}

void channels() {
  const torch::Tensor x = leaf({1, kTokens, kChannels}), dt = leaf({1, kTokens, kChannels}, 0.01, 0.1),
                      a = leaf({kChannels, kStates}, -1, -0.1), b = leaf({1, kTokens, kStates}),
                      c = leaf({1, kTokens, kStates}), weight = leaf({kChannels, 4}),
                      input_gate = leaf({1, kTokens, kChannels}), recurrent_gate = leaf({1, kTokens, kChannels}),
                      rate = leaf({kChannels});
  const auto bytes = static_cast<double>(x.nbytes());
  // One exponential for each number of the states in the forward, and one in the backward, which keeps none.
  compare_with_exponentials({"selective_scan", kStates, 2.0 * kTokens * kChannels * kStates, {x, dt, a, b, c}, [=] {
                               return nn::selective_scan({x, dt, a, b, c, torch::Tensor()}).out;
                             }});
  // Forward: x and the output; backward: x, the gradient of the output and that of x.
  compare_with_copies({"causal_convolution", 4, 5 * bytes, {x, weight}, [=] {
                         return nn::causal_convolution(x, {weight, torch::Tensor(), true}).out;
                       }});
  // Forward: x, two gates and the output; backward: those, the gradient of the output and three gradients.
  compare_with_copies({"rg_lru", 1, 12 * bytes, {x, input_gate, recurrent_gate, rate}, [=] {
                         return nn::rg_lru({x, input_gate, recurrent_gate, rate, torch::Tensor()}).out;
                       }});
}

}  // namespace

int main() {
  at::set_num_threads(1);
  channels();
  for (const std::int64_t size : {64, 128, 256}) heads_of(size);
  return 0;
}
