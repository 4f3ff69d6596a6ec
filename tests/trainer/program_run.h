// A short training run of a program, and the notifications that its callbacks get.
#pragma once

#include <fmt/format.h>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gantry/core/config.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/trainer/trainer.h"
#include "program.h"

namespace gantry::testing {

// A tiny GPT-2 on bytes over tp 2 x pp 2, and `keys` of the configuration.
inline Config text_config(const ScratchFolder& scratch, const std::string& keys = "") {
  const std::string text = some_letters(300);
  return Config::parse(fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 16}}}}\n"
      "parallel: {{tensor: 2, pipeline: 2}}\nprecision: float64\n"
      "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 4}}\n"
      "lr_schedule: {{name: cosine, warmup_steps: 2}}\noptimizer: {{lr: 1.0e-2, clip_grad_norm: 1.0}}\n"
      "train: {{steps: 6}}\n{}",
      scratch.write("text.txt", text), keys));
}

// The same with evaluations at every second step and checkpoints.
inline Config evaluated_config(const ScratchFolder& scratch) {
  return text_config(scratch,
                     fmt::format("evaluation: {{path: \"{}\", every: 2, batches: 2}}\ncheckpoint: {{path: \"{}\"}}\n",
                                 scratch / "text.txt", scratch / "checkpoints"));
}

// The notifications of the ranks of a run, in order, by rank.
// A mutex guards them, because rank threads write them.
class Notified {
 public:
  void add(World& world, const std::string& what) {
    const std::lock_guard lock(mutex_);
    by_rank_[world.rank()].push_back(what);
  }
  std::vector<std::string> of_rank(int rank) {
    const std::lock_guard lock(mutex_);
    return by_rank_[rank];
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::string>> by_rank_;
};

inline void tell_all(Trainer& trainer, Notified& notified) {
  World& world = trainer.world();
  trainer.add({.on_step = [&](const StepMetrics& step) { notified.add(world, fmt::format("step {}", step.step)); },
               .on_evaluation =
                   [&](const EvaluationMetrics& all) { notified.add(world, fmt::format("evaluation {}", all.step)); },
               .on_save = [&](std::int64_t step) { notified.add(world, fmt::format("save {}", step)); },
               .on_end =
                   [&](const RunEnd& end) {
                     notified.add(world, fmt::format("end {} {}", end.last_step, static_cast<int>(end.how)));
                   }});
}

// The failure of a job.
inline Failure failure_of(const Config& config, const std::function<void(World&)>& body) {
  return launch_quietly(config, body).value_or(Failure{0, "nothing failed"});
}

}  // namespace gantry::testing
