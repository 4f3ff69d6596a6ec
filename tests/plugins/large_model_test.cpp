// Memory of one rank of eight under ZeRO 3, with seven fake peers: a hundred megabytes of parameters, or ten
// gigabytes with GANTRY_LONG=1.
#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sstream>

#include "bytes_of_steps.h"
#include "gantry/booster/recipe.h"
#include "gantry/tensors/memory_meter.h"
#include "pretended_peers.h"
#include "program.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

constexpr int kShardsOfLarge = 8;
constexpr std::int64_t kTokensOfLarge = 2;  // activations are negligible

struct LargeModel {
  std::int64_t layers, width, words;
  std::string precision = "float32";
  bool tied = false;

  double layer() const { return static_cast<double>(12 * width * width + 13 * width); }
  double table() const { return static_cast<double>(words * width); }
  double parameters() const {
    return static_cast<double>(layers) * layer() + (tied ? 1 : 2) * table() + static_cast<double>((8 + 2) * width);
  }
  double value_bytes() const { return precision == "bfloat16" ? 2 : 4; }
  double shards(double bytes) const { return parameters() * bytes / kShardsOfLarge; }

  // Values or their master weights, gradients and AdamW's moments are sharded. Within the backward of a
  // layer, this layer and the next one are unsharded, and at its end so are the layer's gradients. The
  // message of the reduction holds the gradients once more, together with the next layer, or after the last
  // layer with the embedding's gradient. Fake peers have read earlier messages by then. The gradient of a
  // tied parameter lives from the head's backward to the embedding's.
  double states() const { return shards(4 + 4 + 8); }
  // Shards of gradients that are not reduced yet take no memory: those of the layer and of the embedding
  // before the first layer.
  double peak() const {
    const double absent = 4 * (layer() + table()) / kShardsOfLarge, tie = tied ? 4 * table() : 0;
    const double in_backward = layer() * (2 * value_bytes() + 4) + tie;
    const double in_sum = layer() * (value_bytes() + 2 * 4) + tie;
    const double in_last_sum = layer() * 2 * 4 + 4 * table();
    return states() - absent + std::max({in_backward, in_sum, in_last_sum});
  }

  Config config() const {
    Config config = layout_config({.data = kShardsOfLarge});
    config.model.policy = "gpt2";
    config.model.config_json = fmt::format(
        R"({{"tie_word_embeddings": {}, "n_layer": {}, "n_head": 4, "n_embd": {}, "n_positions": 8, "vocab_size": {},
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}})",
        tied, layers, width, words);
    config.parallel.zero = 3;
    config.precision = precision;
    return config;
  }
};

// The value of a line of /proc, in bytes; 0 if the line is missing.
double bytes_in_proc(const std::string& file, const std::string& key) {
  std::ifstream lines("/proc/" + file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ":")) {
      double kibibytes = 0;
      std::istringstream(line.substr(key.size() + 1)) >> kibibytes;
      return 1024 * kibibytes;
    }
  return 0;
}

// Peak resident memory from the constructor on, minus the resident memory at that time.
class Resident {
 public:
  Resident() : before_(bytes_in_proc("self/status", "VmRSS")) { std::ofstream("/proc/self/clear_refs") << 5; }
  double most() const { return bytes_in_proc("self/status", "VmHWM") - before_; }

 private:
  double before_;
};

// Bytes of the rank's tensors, and resident memory of the process. Deferred weights have untouched memory, so
// the resident memory after boost() is the memory that boosting itself allocates.
struct BytesOfLarge {
  double held = 0, peak = 0, resident_when_boosted = 0, resident = 0;
};

BytesOfLarge train_large(const LargeModel& what) {
  at::set_num_threads(1);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);  // freed memory is returned to the system
  const Config config = what.config();
  PretendedPeers backend(kShardsOfLarge);
  World world(backend, config, Mesh::hybrid(kShardsOfLarge, 1, kShardsOfLarge, 1));
  BytesOfLarge bytes;
  const Resident resident;
  MemoryMeter meter;
  Booster booster{std::make_unique<HybridParallelPlugin>(world, config)};
  auto model = build_model(config);
  auto boosted = booster.boost(model, build_optimizer(config, *model), cross_entropy());
  bytes.resident_when_boosted = resident.most();
  run_measured_steps(torch::arange(kTokensOfLarge).view({1, kTokensOfLarge}), booster, boosted, meter);
  bytes.held = static_cast<double>(meter.bytes());
  bytes.peak = static_cast<double>(meter.peak_bytes());
  bytes.resident = resident.most();
  return bytes;
}

constexpr double kOfTheProgram = 32e6;  // code, tables and caches of LibTorch

void expect_formula(const LargeModel& what) {
  // The first run loads the program's own memory.
  train_large({.layers = 1, .width = 64, .words = 64, .precision = what.precision});
  const BytesOfLarge bytes = train_large(what);
  fmt::print(
      "{:.3f} GB of parameters in {}, one rank of {}: {:.3f} GB resident when boosted; {:.3f} GB held and {:.3f} GB at "
      "the peak of a step, {:.3f} GB resident; by the formula {:.3f} and {:.3f}\n",
      what.parameters() * what.value_bytes() / 1e9, what.precision, kShardsOfLarge, bytes.resident_when_boosted / 1e9,
      bytes.held / 1e9, bytes.peak / 1e9, bytes.resident / 1e9, what.states() / 1e9, what.peak() / 1e9);
  EXPECT_NEAR(bytes.held, what.states(), 0.01 * what.states());
  EXPECT_NEAR(bytes.peak, what.peak(), 0.05 * what.peak());
  // Weights are created as shards. There is also memory for
  // gradient sums, and for the local shard of one unit in flight.
  const double unit = what.value_bytes() * std::max(what.layer(), what.table()) / kShardsOfLarge;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have their own idea of memory
  EXPECT_LE(bytes.resident_when_boosted, 1.05 * what.shards(what.value_bytes() + 4) + unit + kOfTheProgram);
  EXPECT_LE(bytes.resident, 1.05 * what.peak() + kOfTheProgram);
#endif
}

TEST(LargeModel, OneRankHoldsWhatTheFormulaSays) {
  expect_formula({.layers = 8, .width = 512, .words = 4096});
  expect_formula({.layers = 8, .width = 512, .words = 4096, .precision = "bfloat16"});
}

// The table is unsharded before the layers and after them, but not in between.
TEST(LargeModel, ATiedEmbeddingIsUnshardedWhenItIsUsed) {
  expect_formula({.layers = 8, .width = 512, .words = 8192, .tied = true});
}

TEST(LargeModel, OneRankOfTenGigabytesHoldsWhatTheFormulaSays) {
  if (!is_long_form()) GTEST_SKIP() << "takes 7 GB of memory: GANTRY_LONG=1 runs it";
  const LargeModel what{.layers = 32, .width = 2560, .words = 25'600};
  if (bytes_in_proc("meminfo", "MemAvailable") < 1.2 * what.peak()) GTEST_SKIP() << "needs 8 GB of free memory";
  expect_formula(what);
}

}  // namespace
}  // namespace gantry::testing
