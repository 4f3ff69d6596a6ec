// `gantry init --family` of a family that does not read plain text: the samples that the project draws train its model
// as its configuration is written, and the model learns from them.
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/booster/gantry.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

// The files of the template, as a project compiles them.
namespace gantry::testing {
namespace drawn_bert {
#include "gantry/cli/init/samples/drawn_bert.h"
}
namespace drawn_t5 {
#include "gantry/cli/init/samples/drawn_t5.h"
}
namespace drawn_vit {
#include "gantry/cli/init/samples/drawn_vit.h"
}
namespace drawn_whisper {
#include "gantry/cli/init/samples/drawn_whisper.h"
}
namespace {

void expect_learning(const std::string& family, TensorDict (*drawn)(std::int64_t)) {
  const ScratchFolder scratch;
  const Outcome made =
      run_program(fmt::format("cd {} && {} init mine --family {}", scratch.path(), gantry_program(), family));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  torch::manual_seed(1);
  write_safetensors(scratch / "mine/train.safetensors", drawn(64));
  write_safetensors(scratch / "mine/held_out.safetensors", drawn(32));
  const Outcome run =
      run_program(fmt::format("cd {} && {} train train.yaml --set train.steps=12 --set lr_schedule.warmup_steps=1",
                              scratch / "mine", gantry_program()));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::vector<double> losses;
  bool is_evaluated = false;
  std::istringstream lines(read_file(scratch / "mine/runs/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto values = nlohmann::json::parse(line);
    if (values.contains("loss")) losses.push_back(values["loss"]);
    is_evaluated = is_evaluated || values.contains("eval_loss");
  }
  ASSERT_EQ(losses.size(), 12u) << family;
  EXPECT_LT(losses.back(), losses.front() - 0.05) << family;
  EXPECT_TRUE(is_evaluated) << family;
}

TEST(InitSamples, TrainAsTheyAreWritten) {
  for (const char* family : {"bert", "roberta", "xlm-roberta", "distilbert", "nomic_bert", "electra", "modernbert"})
    expect_learning(family, drawn_bert::drawn_samples);
  for (const char* family : {"t5", "mt5", "umt5", "bart", "pegasus"}) expect_learning(family, drawn_t5::drawn_samples);
  expect_learning("vit", drawn_vit::drawn_samples);
  expect_learning("whisper", drawn_whisper::drawn_samples);
}

}  // namespace
}  // namespace gantry::testing
