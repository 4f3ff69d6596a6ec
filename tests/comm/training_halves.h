// A training run that is saved and loaded half-way, as in `gantry train`, with the recorder and the
// communication counts.
#pragma once

#include "../checkpoint/small_run.h"
#include "gantry/comm/observed_backend.h"
#include "gantry/profiling/communication_meter.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

// Rank 0's weights after two steps and a save, and after two more steps of a run that loaded the checkpoint.
struct Halves {
  TensorDict saved, resumed;
};

inline void train_in_halves(World& world, const Config& config, const std::string& folder, Halves& result) {
  const auto meter = std::make_shared<CommunicationMeter>();
  ObservedBackend metered(world.backend(), meter);
  meter->resume();
  World counted(metered, world.config(), world.mesh());
  Halves mine;
  std::string checkpoint;
  {
    SmallRun run(counted, config);
    for (int step = 0; step < 2; ++step) run.step(step);
    checkpoint = run.save(folder, 2);
    mine.saved = run.weights();
  }
  SmallRun run(counted, config);
  run.load(checkpoint);
  for (int step = 2; step < 4; ++step) run.step(step);
  mine.resumed = run.weights();
  EXPECT_FALSE(meter->counts().empty());
  if (world.is_main()) result = std::move(mine);
}

inline void expect_same(const TensorDict& expected, const TensorDict& actual, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(torch::equal(tensor, actual.at(name))) << what << ": " << name;
}

}  // namespace gantry::testing
