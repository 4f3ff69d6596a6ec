#include "gantry/trainer/train.h"

#include "gantry/booster/recipe.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/trainer/sample_text.h"

namespace gantry::cli {

int run_train(const TrainArguments& arguments) {
  const Config config = Config::load(arguments.config, arguments.sets);
  config.require_training();
  load_libraries(config);
  RunOptions options{.status = arguments.status};
  if (!arguments.sample.empty()) options.sample = std::make_shared<SampleText>(arguments.sample, resolve_model(config));
  return train(config, options);
}

}  // namespace gantry::cli
