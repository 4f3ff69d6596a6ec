// Without LibTorch: a configuration's schedule, proved and drawn.
#include <cstdio>

#include "gantry/core/config.h"
#include "gantry/schedule/schedule.h"
#include "gantry/schedule/validate.h"

int main() {
  const auto config = gantry::Config::parse("model: {policy: gpt2}\nparallel: {pipeline: 2}\n");
  const auto schedule = gantry::schedule::generate(config.schedule.name, config.parallel.pipeline, 4, 0, {});
  gantry::schedule::validate(schedule);
  std::printf("%s: %d ranks\n", schedule.name.c_str(), schedule.ranks());
}
