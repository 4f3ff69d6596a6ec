// A step that one rank aborts, in any layout, compared with the same run without it.
#pragma once

#include "tiny_rig.h"

namespace gantry::testing {

struct StopCase {
  const char* name;
  Layout layout;
  int microbatches = 4;
  const char* schedule = "1f1b";
  int chunks = 1;
  int zero = 0;
  const char* precision = "float64";
  const char* recompute = "none";
  std::int64_t samples = 8;        // samples per global batch
  std::vector<int> asks = {0, 1};  // index of the call of `stops` that returns true, one run each
};

inline Config stop_config(const StopCase& how) {
  Config config = tiny(how.layout, how.microbatches);
  config.model.config_json.replace(config.model.config_json.find("\"resid_pdrop\": 0.0"), 18, "\"resid_pdrop\": 0.2");
  config.schedule.name = how.schedule;
  config.schedule.chunks = how.chunks;
  config.schedule.recompute = how.recompute;
  config.parallel.zero = how.zero;
  config.parallel.bucket_mb = 0.001;  // several buckets, reduced within the backward
  config.precision = how.precision;
  config.comm.threads_per_rank = 1;
  return config;
}

// The results of a run of three steps on this rank.
struct StopRun {
  std::vector<double> losses;
  std::vector<torch::Tensor> weights;
};

// In the second step the rank `stopper` aborts an evaluation and then the training step, when `stops` is
// called for the time `ask`, counted from 0. All ranks abort both, and run the training step again. Without a
// stopper (-1) nothing is aborted.
inline StopRun run_with_stop(World& world, const Config& config, std::int64_t samples, int stopper, int ask) {
  Rig rig(world, config);
  StopRun run;
  const auto give_up = [&](const Batch& batch, bool evaluates) {
    int asked = 0;
    const StepResult result = rig.booster.execute_pipeline(
        batch, rig.boosted, {.broadcast_loss = true, .forward_only = evaluates, .stops = [&] {
                               return asked++ >= ask && world.rank() == stopper;
                             }});
    EXPECT_TRUE(result.aborted) << "asked " << asked << " times";
    EXPECT_FALSE(result.loss);
  };
  for (int step = 0; step < 3; ++step) {
    const Batch batch = rig.batch(tokens(samples, step));
    if (step == 1 && stopper >= 0) {
      give_up(batch, /*evaluates=*/true);
      give_up(batch, /*evaluates=*/false);
    }
    const StepResult result =
        rig.booster.execute_pipeline(batch, rig.boosted, {.broadcast_loss = true, .stops = [] { return false; }});
    EXPECT_FALSE(result.aborted);
    run.losses.push_back(result.loss.value_or(-1));
    rig.boosted.optimizer->step();
    rig.boosted.optimizer->zero_grad();
  }
  rig.boosted.optimizer->wait();
  for (const auto& held : rig.boosted.model->stage_module().parameters) run.weights.push_back(held.tensor.clone());
  return run;
}

inline void expect_stop_leaves_no_trace(const StopCase& how) {
  SCOPED_TRACE(how.name);
  const Config config = stop_config(how);
  EXPECT_EQ(start_ranks()(config,
                          [&](World& world) {
                            const StopRun full = run_with_stop(world, config, how.samples, -1, 0);
                            for (const int stopper : {0, world.size() - 1})
                              for (const int ask : how.asks) {
                                SCOPED_TRACE(std::to_string(stopper) + " at " + std::to_string(ask));
                                const StopRun other = run_with_stop(world, config, how.samples, stopper, ask);
                                EXPECT_EQ(full.losses, other.losses);
                                for (std::size_t i = 0; i < full.weights.size(); ++i)
                                  EXPECT_TRUE(torch::equal(full.weights[i], other.weights[i])) << i;
                              }
                          }),
            0);
}

}  // namespace gantry::testing
