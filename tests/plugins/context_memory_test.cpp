// Activation memory of ranks that share sequences, in bytes.
#include <gtest/gtest.h>

#include "gantry/tensors/memory_meter.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kFewTokens = 256, kManyTokens = 512;
constexpr int kHeads = 4, kKeyHeads = 2, kHeadSize = 16, kLayers = 3;

// The peak memory of rank 0 in a step of one sample of `tokens` tokens.
std::int64_t peak_of(const std::string& method, int context, std::int64_t tokens) {
  Config config = layout_config({.context = context});
  config.model.policy = "llama";
  config.model.config_json =
      R"({"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
          "intermediate_size": 128, "vocab_size": 64, "max_position_embeddings": 512})";
  config.parallel.context_method = method;
  config.comm.threads_per_rank = 1;
  return on_layout<std::int64_t>(config, [&](World& world) {
    MemoryMeter meter(world.device().type());
    Rig rig(world, config);
    const torch::Tensor ids = (torch::arange(tokens) * 7 % 64).view({1, tokens});
    for (int step = 0; step < 2; ++step) {  // the first step allocates the memory that stays
      meter.reset_peak();
      rig.booster.execute_pipeline(rig.batch({{"input_ids", ids}, {"labels", ids}}), rig.boosted, {});
      rig.boosted.optimizer->zero_grad();
    }
    return meter.peak_bytes();
  });
}

std::int64_t bytes_of_more_tokens(const std::string& method, int context) {
  return peak_of(method, context, kManyTokens) - peak_of(method, context, kFewTokens);
}

// Each rank holds its part of the activations, and the buffers of its method: keys and values from other
// ranks and, in the backward, gradients of the same size.
TEST(ContextMemory, ActivationsFallWithTheRanks) {
  const std::int64_t alone = bytes_of_more_tokens("auto", 1);
  const auto keys_of = [](std::int64_t tokens) { return tokens * 2 * kKeyHeads * kHeadSize * 4; };
  const std::int64_t more_tokens = kManyTokens - kFewTokens;
  for (const int context : {2, 4}) {
    // A ring holds three blocks, in one layer at a time: the current one, the incoming one and the outgoing
    // one. Their gradients take the same memory.
    EXPECT_LE(bytes_of_more_tokens("ring", context), alone / context + 6 * keys_of(more_tokens / context)) << context;
  }
  // All tokens of 1 / cp of the heads take as much memory as 1 / cp of the tokens.
  // A rank that is ahead also holds what it has sent until the other rank has read
  // it: the queries, keys and values of an exchange, and their gradients.
  const std::int64_t sent = keys_of(more_tokens / 2) + more_tokens / 2 * kHeads * kHeadSize * 4;
  EXPECT_LE(bytes_of_more_tokens("ulysses", 2), alone / 2 + 6 * keys_of(more_tokens / 2) + 2 * sent);
  // Gathered keys and values stay until the backward of each layer. So do LibTorch's masks, which are float32
  // copies of one mask of bools.
  const std::int64_t masked = (kManyTokens * kManyTokens - kFewTokens * kFewTokens) / 4;
  EXPECT_LE(bytes_of_more_tokens("all_gather", 4),
            alone / 4 + (kLayers + 4) * keys_of(more_tokens) + (4 * kLayers + 1) * masked);
}

}  // namespace
}  // namespace gantry::testing
