// What ranks that share sequences hold of activations, counted in bytes.
#include <gtest/gtest.h>

#include "gantry/tensors/memory_meter.h"
#include "tiny_rig.h"

namespace gantry::testing {
namespace {

constexpr std::int64_t kFewTokens = 256, kManyTokens = 512;
constexpr int kHeads = 4, kKeyHeads = 2, kHeadSize = 16, kLayers = 3;

// The most that rank 0 holds in a step of one sample of so many tokens.
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
    for (int step = 0; step < 2; ++step) {  // the first one makes what stays
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

// A rank's part of activations, and what its method has beside it: keys and values that others sent, with gradients of
// the same size in the backward.
TEST(ContextMemory, ActivationsFallWithTheRanks) {
  const std::int64_t alone = bytes_of_more_tokens("auto", 1);
  const auto keys_of = [](std::int64_t tokens) { return tokens * 2 * kKeyHeads * kHeadSize * 4; };
  const std::int64_t more_tokens = kManyTokens - kFewTokens;
  for (const int context : {2, 4}) {
    // A ring, in one layer at a time: the block that is here, the one that comes and the one that leaves, and their
    // gradients.
    EXPECT_LE(bytes_of_more_tokens("ring", context), alone / context + 6 * keys_of(more_tokens / context)) << context;
  }
  // All tokens of a part of the heads are as much as a part of the tokens. A rank that is ahead also holds what it has
  // sent and the other one has not read: queries, keys and values of an exchange, and their gradients.
  const std::int64_t sent = keys_of(more_tokens / 2) + more_tokens / 2 * kHeads * kHeadSize * 4;
  EXPECT_LE(bytes_of_more_tokens("ulysses", 2), alone / 2 + 6 * keys_of(more_tokens / 2) + 2 * sent);
  // Gathered keys stay for the backwards of all layers, and so do LibTorch's masks, in float32, of one in bools.
  const std::int64_t masked = (kManyTokens * kManyTokens - kFewTokens * kFewTokens) / 4;
  EXPECT_LE(bytes_of_more_tokens("all_gather", 4),
            alone / 4 + (kLayers + 4) * keys_of(more_tokens) + (4 * kLayers + 1) * masked);
}

}  // namespace
}  // namespace gantry::testing
