// generation_bench MODEL PROMPT_TOKENS NEW_TOKENS BEAMS THREADS: continues one prompt of 1, 2, 3, ... by a model's
// directory, with a cache and without, and prints {"cached", "whole"} tokens per second (the faster of three) and the
// tokens.
#include <chrono>
#include <cstdio>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gantry/booster/gantry.h"

namespace {

double rate(gantry::Boosted& boosted, gantry::HybridParallelPlugin& plugin, const gantry::TokenIds& prompt,
            const gantry::GenerationOptions& options, gantry::TokenIds& tokens) {
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const auto started = std::chrono::steady_clock::now();
    tokens = gantry::generate(boosted, plugin, {prompt}, options).front().tokens;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    best = std::max(best, static_cast<double>(tokens.size()) / seconds);
  }
  return best;
}

int run(char** argv) {
  const std::string model = fmt::format("{{\"model\": {{\"path\": \"{}\"}}}}", argv[1]);
  const auto config =
      gantry::resolve_model(gantry::Config::parse(model, "bench", {fmt::format("comm.threads_per_rank={}", argv[5])}));
  return gantry::launch(config, [&](gantry::World& world) {
    auto* plugin = new gantry::HybridParallelPlugin(world, config);
    gantry::Booster booster{std::unique_ptr<gantry::Plugin>(plugin)};
    auto boosted = booster.boost(gantry::build_model(config), nullptr, gantry::cross_entropy());
    gantry::load_weights(config, boosted, plugin->mesh());
    gantry::TokenIds prompt, cached_tokens, full_tokens;
    for (int i = 0; i < std::stoi(argv[2]); ++i) prompt.push_back(1 + i);
    gantry::GenerationOptions options{.max_new_tokens = std::stoi(argv[3]), .num_beams = std::stoi(argv[4])};
    const double cached = rate(boosted, *plugin, prompt, options, cached_tokens);
    options.use_cache = false;
    const double full = rate(boosted, *plugin, prompt, options, full_tokens);
    fmt::print("{{\"cached\": {}, \"whole\": {}, \"same\": {}, \"tokens\": [{}]}}\n", cached, full,
               cached_tokens == full_tokens, fmt::join(cached_tokens, ", "));
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 6) throw std::invalid_argument("usage: generation_bench MODEL PROMPT_TOKENS NEW_TOKENS BEAMS THREADS");
    return run(argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
