// A short run of two stages that is evaluated and saved every two steps, for tests of its files.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <string>

#include "gantry/core/config.h"
#include "gantry/trainer/train.h"
#include "program.h"

namespace gantry::testing {

inline Config logged_config(const ScratchFolder& scratch, const std::string& files, int steps,
                            const std::string& more = "") {
  const std::string text = some_letters(200);
  const std::string path = scratch.write("text.txt", text);
  return Config::parse(fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 8, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 8}}}}\n"
      "parallel: {{pipeline: 2}}\ndata: {{format: text, path: \"{0}\", sequence_length: 8, batch_size: 4}}\n"
      "evaluation: {{path: \"{0}\", every: 2, batches: 1}}\ntrain: {{steps: {1}, log_files: {2}}}\n"
      "checkpoint: {{path: \"{3}\", every: 2, resume: auto}}\noutput: \"{4}\"\n{5}",
      path, steps, files, scratch / "checkpoints", scratch / "run", more));
}

inline int run_logged(const Config& config, const std::function<void(int rank, std::int64_t step)>& before_step = {}) {
  return train(config, [&](Trainer& trainer) {
    if (before_step)
      trainer.add({.before_step = [&](std::int64_t step) { before_step(trainer.world().rank(), step); }});
    trainer.run();
  });
}

}  // namespace gantry::testing
