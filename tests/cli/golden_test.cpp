// Hugging Face's own numbers, through `gantry forward` and `gantry train`: each size of either axis, shared among the
// models, and every layout of each under GANTRY_LONG=1. The grids of plugins/ have the pairs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

std::string golden(const std::string& model) { return std::string(GANTRY_SOURCE_DIR) + "/tests/golden/" + model; }

double largest(const torch::Tensor& tensor) { return tensor.abs().max().item<double>(); }

double largest_of(const TensorDict& tensors) {
  double all = 0;
  for (const auto& [name, tensor] : tensors) all = std::max(all, largest(tensor));
  return all;
}

// Sequence parallelism on every other layout.
std::string layout_flags(int tensor, int pipeline) {
  return " --set parallel.tensor=" + std::to_string(tensor) + " --set parallel.pipeline=" + std::to_string(pipeline) +
         ((tensor + pipeline) % 2 ? " --set parallel.sequence_parallel=true" : "");
}

void check_forward(const std::string& model, int tensor, int pipeline) {
  const ScratchFolder scratch;
  const std::string folder = golden(model);
  const Outcome run = run_program(gantry_program() + " forward --model " + folder + " --batch " + folder +
                                  "/batch.safetensors --output " + (scratch / "out.safetensors") + " --grads " +
                                  (scratch / "grads.safetensors") + layout_flags(tensor, pipeline));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TensorDict expected = read_safetensors(folder + "/forward.safetensors"),
                   got = read_safetensors(scratch / "out.safetensors");
  EXPECT_LE(largest(got.at("logits") - expected.at("logits")), 2e-5);
  EXPECT_NEAR(got.at("loss").item<double>(), expected.at("loss").item<double>(), 1e-5);
  const TensorDict gradients = read_safetensors(folder + "/grads.safetensors"),
                   made = read_safetensors(scratch / "grads.safetensors");
  ASSERT_EQ(made.size(), gradients.size());
  const double floor = largest_of(gradients) / 1000;
  for (const auto& [name, gradient] : gradients)
    EXPECT_LE(largest(made.at(name) - gradient), 1e-4 * std::max(largest(gradient), floor))
        << model << " " << name << " tp " << tensor << " pp " << pipeline;
}

const std::vector<std::string> kModels = {"gpt2", "llama", "llama_tied_gqa1", "bert"};

class Golden : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Models, Golden, ::testing::Range<std::size_t>(0, 4),
                         [](const auto& info) { return kModels[info.param]; });

// Each model has four of the sixteen, with every size of either axis; the four models have all.
TEST_P(Golden, ForwardAndGradientsInManyLayouts) {
  for (std::size_t tensor = 0; tensor < 4; ++tensor)
    for (std::size_t pipeline = 0; pipeline < 4; ++pipeline)
      if (is_turn(tensor + pipeline, GetParam(), 4))
        check_forward(kModels[GetParam()], static_cast<int>(tensor) + 1, static_cast<int>(pipeline) + 1);
}

// Two texts in one sample, separated by document_ids, have the same logits as each text alone.
TEST(GoldenDocuments, ForwardOfPackedTextsIsThatOfEachAlone) {
  const ScratchFolder scratch;
  const torch::Tensor texts = (torch::arange(12).view({2, 6}) * 7) % 50;
  const torch::Tensor documents = torch::tensor({5, 5, 5, 5, 5, 5, 9, 9, 9, 9, 9, 9}, torch::kInt64).view({1, 12});
  const torch::Tensor positions = torch::arange(6).repeat({2}).view({1, 12});
  const auto logits_of = [&](const std::string& model, const TensorDict& batch, const std::string& layout) {
    write_safetensors(scratch / "batch.safetensors", batch);
    const Outcome run =
        run_program(gantry_program() + " forward --model " + golden(model) + " --batch " +
                    (scratch / "batch.safetensors") + " --output " + (scratch / "out.safetensors") + layout);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.exit_code == 0 ? read_safetensors(scratch / "out.safetensors").at("logits") : torch::Tensor();
  };
  for (const char* model : {"gpt2", "llama"}) {
    const torch::Tensor alone = logits_of(model, {{"input_ids", texts}}, "");
    const TensorDict packed = {{"input_ids", texts.view({1, 12})}, {"document_ids", documents}};
    TensorDict placed = packed;
    placed.set("position_ids", positions);
    ASSERT_TRUE(alone.defined());
    for (const char* layout : {"", " --set parallel.tensor=2", " --set parallel.context=2"})
      for (const TensorDict& batch : turn_of(next_turn("batches"), 2, std::vector<TensorDict>{packed, placed})) {
        const torch::Tensor got = logits_of(model, batch, layout);
        ASSERT_TRUE(got.defined());
        EXPECT_LE(largest(got.view_as(alone) - alone), 2e-5) << model << layout;
      }
  }
}

// Models with experts: the outputs of the routers, in layouts that split layers, samples and tokens.
TEST(GoldenExperts, ForwardGivesTheRoutersOutputs) {
  const std::vector<std::string> layouts = {
      "",
      " --set parallel.tensor=2 --set parallel.sequence_parallel=true",
      " --set parallel.pipeline=2 --set schedule.microbatches=2",
      " --set parallel.data=2",
      " --set parallel.data=2 --set parallel.expert=2",
      " --set parallel.data=4 --set parallel.expert=4",
      " --set parallel.context=2 --set parallel.context_method=ring --set parallel.data=2"};
  std::size_t index = 0;
  for (const std::string model : {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "gpt_oss"})
    for (const std::string& layout : turn_of(index++, 3, layouts)) {
      SCOPED_TRACE(model + layout);
      const ScratchFolder scratch;
      const std::string folder = golden("families/" + model);
      TensorDict batch = read_safetensors(folder + "/inputs.safetensors");
      const torch::Tensor labels = batch.at("labels");
      torch::Tensor next = torch::full_like(labels, -100);
      next.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
      batch.set("labels", next);
      write_safetensors(scratch / "batch.safetensors", batch);
      const Outcome run =
          run_program(gantry_program() + " forward --model " + folder + " --batch " + (scratch / "batch.safetensors") +
                      " --output " + (scratch / "out.safetensors") + " --set precision=float32" + layout);
      ASSERT_EQ(run.exit_code, 0) << run.err;
      const TensorDict expected = read_safetensors(folder + "/expected.safetensors"),
                       got = read_safetensors(scratch / "out.safetensors");
      for (const auto& [name, tensor] : expected) {
        if (name.starts_with("grad.")) continue;
        ASSERT_TRUE(got.contains(name)) << name;
        EXPECT_LE(largest(got.at(name) - tensor), name.ends_with("loss") ? 1e-5 : 5e-5) << name;
      }
    }
}

std::string training_config(const ScratchFolder& scratch, const std::string& folder, const nlohmann::json& golden) {
  const auto& settings = golden["optimizer"];
  std::ostringstream text;
  text << "model: {path: \"" << folder << "\"}\n"
       << "data: {format: tokens, path: \"" << folder << "/tokens.bin\", sequence_length: " << golden["sequence"]
       << ", batch_size: " << golden["batch"] << ", shuffle: false}\n"
       << "optimizer: {name: adamw, lr: " << settings["lr"] << ", betas: " << settings["betas"]
       << ", eps: " << settings["eps"] << ", weight_decay: " << settings["weight_decay"]
       << ", clip_grad_norm: " << settings["clip_grad_norm"] << "}\n"
       << "train: {steps: " << golden["steps"] << "}\n"
       << "checkpoint: {path: \"" << (scratch / "checkpoints") << "\"}\noutput: \"" << (scratch / "run") << "\"\n";
  return scratch.write("train.yaml", text.str());
}

void check_training(const std::string& model, int tensor, int pipeline) {
  const ScratchFolder scratch;
  const std::string folder = testing::golden(model);
  const auto golden = nlohmann::json::parse(read_file(folder + "/trajectory.json"));
  const std::string config = training_config(scratch, folder, golden);
  const Outcome run = run_program(gantry_program() + " train " + config + layout_flags(tensor, pipeline));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::istringstream lines(read_file(scratch / "run/metrics.jsonl"));
  std::size_t step = 0;
  for (std::string line; std::getline(lines, line); ++step) {
    const auto got = nlohmann::json::parse(line);
    const auto& expected = golden["history"][step];
    EXPECT_EQ(got["step"], expected["step"]);
    EXPECT_NEAR(got["loss"].get<double>(), expected["loss"].get<double>(), 1e-4 * expected["loss"].get<double>());
    EXPECT_NEAR(got["grad_norm"].get<double>(), expected["grad_norm"].get<double>(),
                1e-3 * expected["grad_norm"].get<double>());
  }
  EXPECT_EQ(step, golden["history"].size());

  const Outcome exported =
      run_program(gantry_program() + " checkpoint export " + (scratch / "checkpoints") + " " + (scratch / "export"));
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const TensorDict expected = read_safetensors(folder + "/final.safetensors"),
                   got = read_safetensors(scratch / "export/model.safetensors");
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, full] : expected) {
    torch::Tensor weight = full, made = got.at(name);
    if (name.ends_with("c_attn.bias")) {  // the key's exact gradient is zero, so AdamW follows rounding there
      const auto third = weight.size(0) / 3;
      weight = torch::cat({weight.narrow(0, 0, third), weight.narrow(0, 2 * third, third)});
      made = torch::cat({made.narrow(0, 0, third), made.narrow(0, 2 * third, third)});
    }
    EXPECT_LE(largest(made - weight), 1e-3 * largest(weight)) << name << " tp " << tensor << " pp " << pipeline;
  }
}

// Each of these is a process that trains 12 steps: every size of either axis, and both.
TEST_P(Golden, TrainingInManyLayouts) {
  if (kModels[GetParam()] == "bert") return;  // its case masks tokens, which the reader of causal text does not
  const std::vector<std::pair<int, int>> layouts = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3}, {1, 4}, {4, 1},
                                                    {2, 2}, {3, 2}, {2, 3}, {4, 2}, {3, 4}, {4, 4}};
  for (const auto& [tensor, pipeline] : turn_of(GetParam(), 3, layouts))
    check_training(kModels[GetParam()], tensor, pipeline);
}

// `gantry init --family`: the configuration that it writes trains as it is.
TEST(InitFamily, TrainsAsItIsWritten) {
  const ScratchFolder scratch;
  for (const char* family : {"gpt2", "gemma3_text"}) {
    const Outcome made = run_program("cd " + scratch.path() + " && " + gantry_program() + " init mine_" + family +
                                     " --family " + family);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const Outcome run = run_program("cd " + (scratch / "mine_") + family + " && " + gantry_program() +
                                    " train train.yaml --set train.steps=3 --set lr_schedule.warmup_steps=1");
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_NE(read_file((scratch / "mine_") + family + "/runs/metrics.jsonl").find("\"step\":3"), std::string::npos);
  }
}

TEST(FamilyFiles, ThereAndBackAreTheSameBytes) {
  for (const char* family : {"cohere2", "gemma2", "gpt_neox", "gptj", "phi3", "qwen2"}) {
    const ScratchFolder scratch;
    const std::string folder = golden(std::string("families/") + family), command = gantry_program() + " checkpoint ";
    for (const std::string& step : {"import " + folder + " " + (scratch / "checkpoint"),
                                    "export " + (scratch / "checkpoint") + " " + (scratch / "model")}) {
      const Outcome run = run_program(command + step);
      ASSERT_EQ(run.exit_code, 0) << run.err;
    }
    EXPECT_EQ(read_file(scratch / "model/model.safetensors"), read_file(folder + "/model.safetensors")) << family;
    const auto given = nlohmann::json::parse(read_file(folder + "/config.json"));
    auto got = nlohmann::json::parse(read_file(scratch / "model/config.json"));
    EXPECT_EQ(got["torch_dtype"], given["dtype"]);  // as older versions of transformers call it
    // Older spellings of the keys in rope_parameters.
    for (const char* key :
         {"torch_dtype", "rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_emb_base", "rotary_pct"})
      if (!given.contains(key)) got.erase(key);
    EXPECT_EQ(got, given) << family;
  }
}

// Wrong model directories: one line, exit code 3 for errors in config.json, 4 for errors in the other files. An unknown
// key is a warning.
TEST(FamilyFiles, WrongOnesAreRefusedInOneLine) {
  const std::string folder = golden("families/mistral");
  const auto expect_line = [&](const std::function<void(nlohmann::json&)>& change, int code, const std::string& said) {
    const ScratchFolder scratch;
    auto keys = nlohmann::json::parse(read_file(folder + "/config.json"));
    change(keys);
    std::filesystem::create_directory(scratch / "model");
    scratch.write("model/config.json", keys.dump());
    std::filesystem::copy_file(folder + "/model.safetensors", scratch / "model/model.safetensors");
    const Outcome run =
        run_program(gantry_program() + " checkpoint import " + (scratch / "model") + " " + (scratch / "checkpoint"));
    EXPECT_EQ(run.exit_code, code) << said << run.err;
    EXPECT_NE(run.err.find(said), std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  };
  expect_line([](auto& keys) { keys["model_type"] = "mistrall"; }, 3, "did you mean 'mistral'?");
  expect_line([](auto& keys) { keys["intermediate_size"] = 35; }, 4, "has the shape");
  expect_line([](auto& keys) { keys["num_hidden_layers"] = 3; }, 4, "tensors are missing");
  expect_line([](auto& keys) { keys["num_hidden_layers"] = 1; }, 4, "unexpected");
  expect_line([](auto& keys) { keys["num_key_value_heads"] = 4; }, 3, "a divisor of num_attention_heads 6");
  expect_line([](auto& keys) { keys["sparse_attention"] = true; }, 0, "unknown to mistral: sparse_attention");
  expect_line(
      [](auto& keys) {
        keys["rope_scaling"] = {{"rope_type", "default"}, {"rope_theta", 7.0}};
      },
      3, "the value in rope_scaling");
  expect_line([](auto& keys) { keys["hidden_size"] = -1; }, 3, "hidden_size");
  expect_line([](auto& keys) { keys["rms_norm_eps"] = "small"; }, 3, "rms_norm_eps");
}

}  // namespace
}  // namespace gantry::testing
