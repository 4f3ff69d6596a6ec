// Keys for fine-tuning: label smoothing, warm-up as a share of the steps, a time limit.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "lora_rig.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

TEST(WarmupRatio, IsAShareOfTheStepsRoundedUp) {
  const Config config = Config::parse(
      "model: {policy: llama}\noptimizer: {lr: 0.5}\nlr_schedule: {name: linear, warmup_ratio: 0.3}\ntrain: {steps: "
      "7}");
  const LrSchedule rates = build_lr_schedule(config);
  EXPECT_DOUBLE_EQ(rates.at(2), 0.5 / 3);  // 3 warm-up steps: 2.1 rounded up
  EXPECT_DOUBLE_EQ(rates.at(4), 0.5);
  EXPECT_EQ(Config::parse(config.to_yaml()).lr_schedule.warmup_ratio, 0.3);
  EXPECT_THROW(Config::parse("model: {policy: llama}\nlr_schedule: {warmup_ratio: 0.3, warmup_steps: 2}"), ConfigError);
}

TEST(LabelSmoothing, IsTheCriterions) {
  Config config = lora_config({});
  config.train.label_smoothing = 0.2;
  const torch::Tensor logits = torch::sin(torch::arange(4 * 31, torch::kFloat64)).view({1, 4, 31});
  const torch::Tensor labels = torch::tensor({{3, 30, 0, -100}});
  const Loss loss = build_criterion(config)({{"logits", logits}}, {{"labels", labels}}, {});
  const torch::Tensor logs = torch::log_softmax(logits[0].narrow(0, 0, 3), -1);
  const double expected =
      -(0.8 * logs.gather(1, labels[0].narrow(0, 0, 3).unsqueeze(1)).sum() + 0.2 * logs.mean(-1).sum()).item<double>();
  EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-12);
  config.model.policy = "bert";
  config.model.config_json = R"({"architectures": ["BertForQuestionAnswering"]})";
  try {
    build_criterion(config);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("train.label_smoothing: the key has no effect for a model that is trained on spans"));
  }
}

// A full run with adapters: it ends at the time limit, is
// resumed, and its result is exported, merged and used.
TEST(FineTuning, EndsInTimeAndGoesOnAndMerges) {
  const ScratchFolder scratch;
  const std::string golden = GANTRY_SOURCE_DIR "/tests/golden/llama";
  const std::string yaml = scratch.write("train.yaml", fmt::format(R"(
model: {{path: {0}}}
lora: {{r: 2, alpha: 6, target_modules: all-linear, modules_to_save: [norm]}}
parallel: {{tensor: 2}}
data: {{format: tokens, path: {0}/tokens.bin, sequence_length: 16, batch_size: 4}}
train: {{steps: 3, max_minutes: 1.0e-6}}
checkpoint: {{path: {1}, resume: auto}}
)",
                                                                   golden, scratch / "checkpoints"));
  const auto gantry = [&](const std::string& arguments) {
    return run_program("OMP_NUM_THREADS=1 " + gantry_program() + " " + arguments);
  };
  const Outcome first = gantry("train " + yaml);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("step-000001"));
  const Outcome rest = gantry("train " + yaml + " --set train.max_minutes=0");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("step-000003"));
  EXPECT_THAT(rest.out, HasSubstr("resuming from"));
  const Outcome other = gantry("train " + yaml + " --set train.steps=4 --set lora.alpha=5");
  EXPECT_EQ(other.exit_code, 5) << other.err;
  EXPECT_THAT(other.err, HasSubstr("the checkpoint has adapters of r 2, alpha 6; expected r 2, alpha 5"));

  const std::string checkpoints = scratch / "checkpoints", tokens = " --tokens 40,7,101 --max-new-tokens 6";
  ASSERT_EQ(gantry("checkpoint export " + checkpoints + " " + (scratch / "adapter")).exit_code, 0);
  const Outcome merge = gantry("checkpoint merge " + checkpoints + " " + (scratch / "merged"));
  ASSERT_EQ(merge.exit_code, 0) << merge.err;
  run_program("cp -r " + golden + " " + (scratch / "base"));
  for (const std::string& own : {scratch / "adapter", scratch / "base"}) {
    const Outcome refused =
        gantry("checkpoint merge " + (scratch / "adapter") + " " + own + " --model " + (scratch / "base"));
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(own + ": the directory is read, and the result would overwrite it"));
  }
  EXPECT_EQ(read_file(scratch / "base/config.json"), read_file(golden + "/config.json"));
  const Outcome coded = gantry("checkpoint merge " + checkpoints + " " + (scratch / "coded") + " --quantize nf4");
  ASSERT_EQ(coded.exit_code, 0) << coded.err;
  const Outcome decoded = gantry("generate --model " + (scratch / "coded") + tokens);
  ASSERT_EQ(decoded.exit_code, 0) << decoded.err;
  EXPECT_EQ(gantry("generate --model " + (scratch / "coded") + tokens + " --set model.quantize=nf4").out, decoded.out);
  const std::string twice = scratch / "twice", is_double = " --set model.quantize=nf4 --set model.quantize_double=true";
  ASSERT_EQ(gantry("checkpoint merge " + checkpoints + " " + twice + " --quantize nf4 --quantize-double").exit_code, 0);
  const Outcome decoded_twice = gantry("generate --model " + twice + tokens);
  ASSERT_EQ(decoded_twice.exit_code, 0) << decoded_twice.err;
  EXPECT_EQ(gantry("generate --model " + twice + tokens + is_double + " --set parallel.tensor=2").out,
            decoded_twice.out);
  EXPECT_THAT(
      gantry("checkpoint merge " + checkpoints + " " + twice + " --quantize int8 --quantize-double").err,
      HasSubstr("--quantize-double: int8 has one scale for each row, which is not quantized; expected --quantize "
                "nf4 or fp4; remove the option"));
  EXPECT_THAT(gantry("checkpoint merge " + checkpoints + " " + twice + " --quantize-double").err,
              HasSubstr("--quantize-double requires --quantize"));
  EXPECT_THAT(gantry("train " + yaml + " --set train.steps=4" + is_double).err,
              HasSubstr("the adapters were trained on a base with model.quantize: no quantisation; expected nf4 with "
                        "model.quantize_double, as in this run; use the checkpoint's model.quantize"));
  EXPECT_THAT(gantry("checkpoint export " + checkpoints + " " + (scratch / "none") + " --quantize nf4").err,
              HasSubstr("contains only adapters, which are not quantized"));
  const Outcome merged = gantry("generate --model " + (scratch / "merged") + tokens);
  const Outcome adapted = gantry("generate --model " + golden + " --adapter " + (scratch / "adapter") + tokens);
  const Outcome stored = gantry("generate --model " + checkpoints + tokens + " --set parallel.tensor=2");
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(adapted.out, merged.out) << adapted.err;
  EXPECT_EQ(stored.out, merged.out) << stored.err;
  const Outcome resharded =
      gantry("checkpoint reshard " + checkpoints + " " + (scratch / "resharded") + " --set parallel.tensor=1");
  ASSERT_EQ(resharded.exit_code, 0) << resharded.err;
  const Outcome same = gantry("checkpoint diff " + checkpoints + " " + (scratch / "resharded"));
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_EQ(gantry("checkpoint merge " + golden + " " + (scratch / "none")).exit_code, 5);
}

TEST(FineTuning, ForwardGivesPeftsNamesAndNumbers) {
  const ScratchFolder scratch;
  const std::string folder = GANTRY_SOURCE_DIR "/tests/golden/lora/qv";
  TensorDict batch;
  for (const auto& [name, tensor] : read_safetensors(folder + "/inputs.safetensors")) {
    if (name != "labels") {
      batch.set(name, tensor);
      continue;
    }
    torch::Tensor next = torch::full_like(tensor, -100);
    next.narrow(1, 0, tensor.size(1) - 1).copy_(tensor.narrow(1, 1, tensor.size(1) - 1));
    batch.set(name, next);
  }
  write_safetensors(scratch / "batch", batch);
  const Outcome run = run_program(fmt::format(
      "OMP_NUM_THREADS=1 {} forward --model {} --adapter {}/adapter --batch {} --output {} --grads {} --set "
      "parallel.tensor=2",
      gantry_program(), folder, folder, scratch / "batch", scratch / "out", scratch / "grads"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TensorDict expected = read_safetensors(folder + "/expected.safetensors"),
                   gradients = read_safetensors(scratch / "grads"), out = read_safetensors(scratch / "out");
  EXPECT_LE((out.at("logits") - expected.at("logits")).abs().max().item<double>(), 5e-5);
  EXPECT_EQ(gradients.size(), expected.size() - 2);
  for (const auto& [name, gradient] : gradients)
    EXPECT_LE((gradient - expected.at("grad." + name)).abs().max().item<double>(), 1e-5) << name;
}

}  // namespace
}  // namespace gantry::testing
