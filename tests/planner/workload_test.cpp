// The trained parameters of a configuration in a plan.
#include "gantry/planner/workload.h"

#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "gantry/planner/config.h"
#include "gantry/planner/estimate.h"
#include "gantry/planner/parameters.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::planner {
namespace {

using gantry::testing::ScratchFolder;
using ::testing::HasSubstr;

const std::string kAdapted = GANTRY_SOURCE_DIR "/tests/golden/lora/";

PlanRequest adapted_request(const std::string& model, const std::string& lora) {
  return plan_request(Config::parse("model: {path: \"" + kAdapted + model + "\"}\nlora: " + lora +
                                    "\ndata: {format: text, path: x, sequence_length: 16, batch_size: 4}\n"));
}

// The file of an adapter is equivalent to its keys, including ranks by pattern and parameters of experts.
TEST(TrainedPart, AnAdaptersFileSaysWhatIsTrained) {
  for (const auto& [model, keys] : std::vector<std::pair<std::string, std::string>>{
           {"qv", "{r: 4, alpha: 8, target_modules: [q_proj, v_proj]}"},
           {"experts",
            "{r: 3, alpha: 5, target_modules: [embed_tokens, q_proj, mlp.experts.down_proj, mlp.experts.gate_up_proj, "
            "mlp.gate.weight], rank_pattern: {layers.1.mlp.experts.down_proj: 2}}"}}) {
    const PlanRequest stated = adapted_request(model, keys),
                      read = adapted_request(model, "{path: \"" + kAdapted + model + "/adapter\"}");
    EXPECT_FALSE(read.workload.trained.adapters.empty());
    EXPECT_EQ(read.workload.trained.adapters, stated.workload.trained.adapters) << model;
    EXPECT_EQ(read.workload.trained.frozen, stated.workload.trained.frozen) << model;
    const Cluster one = with_ranks(load_cluster("a100_80g"), 1, /*grows=*/true);
    EXPECT_EQ(estimate(read.workload, {}, one).most_memory(), estimate(stated.workload, {}, one).most_memory());
  }
}

// A magnitude for each row of an adapted weight, of which a tensor-parallel rank holds those of its rows.
TEST(TrainedPart, CountsMagnitudes) {
  const std::string keys = "{r: 4, alpha: 8, target_modules: [q_proj, down_proj]";
  const PlanRequest plain = adapted_request("dora", keys + "}"),
                    dora = adapted_request("dora", keys + ", use_dora: true}");
  const auto trained = [](const PlanRequest& request, int tensor) {
    double elements = 0;
    for (const auto& layer : held_parameters(request.workload.model, tensor, 1, request.workload.trained).layers)
      elements += layer.trained_dense;
    return elements;
  };
  EXPECT_EQ(trained(dora, 1) - trained(plain, 1), 2 * (32 + 32));
  EXPECT_EQ(trained(dora, 2) - trained(plain, 2), 2 * (16 + 32));
  const Cluster one = with_ranks(load_cluster("a100_80g"), 1, /*grows=*/true);
  EXPECT_GT(estimate(dora.workload, {}, one).most_memory(), estimate(plain.workload, {}, one).most_memory());
}

// A tied output layer on another stage has them too.
TEST(TrainedPart, CountsTrainedTokens) {
  for (const std::string model : {"tied_tokens", "own_tokens"}) {
    const std::string keys = "{target_modules: [q_proj]";
    const PlanRequest plain = adapted_request(model, keys + "}"),
                      tokens = adapted_request(model, keys + ", trainable_token_indices: [1, 5, 9]}");
    const auto held = [](const PlanRequest& request) {
      return held_parameters(request.workload.model, 2, 1, request.workload.trained);
    };
    const double rows = 3 * 16, tied = model == "tied_tokens" ? rows : 0;
    EXPECT_EQ(held(tokens).first.trained_dense - held(plain).first.trained_dense, rows);
    EXPECT_EQ(held(tokens).last.trained_dense - held(plain).last.trained_dense, tied);
    EXPECT_EQ(held(tokens).trained_tied, tied);
    EXPECT_EQ(tokens.workload.keeps_logits, tied > 0);
  }
}

// Rows of 1024 inputs: codes, and 16 scales in 32 or 8 bits; the latter have a mean and a factor.
TEST(TrainedPart, CountsScalesOfTheBase) {
  const auto request = [](const std::string& quantize) {
    return plan_request(Config::parse("model: {path: \"" + kAdapted + "dora\", config: {intermediate_size: 1024}, " +
                                      quantize +
                                      "}\nlora: {r: 4, target_modules: all-linear}\n"
                                      "data: {format: text, path: x, sequence_length: 16, batch_size: 4}\n"));
  };
  const PlanRequest plain = request("quantize: nf4"), nested = request("quantize: nf4, quantize_double: true");
  const std::string down = "layers.0.mlp.down_proj.weight";
  ASSERT_TRUE(plain.workload.trained.quantised.contains(down));
  EXPECT_EQ(plain.workload.trained.quantised.at(down), (512. + 4 * 16) / 4096);
  EXPECT_EQ(nested.workload.trained.quantised.at(down), (512. + 16 + 8) / 4096);
}

// fp8 has a scale for 128 inputs, also in stacks of experts; mxfp4 has a byte for 32 inputs, in the stacks alone.
TEST(TrainedPart, CountsCodesOfExperts) {
  const auto request = [](const char* model, const char* code) {
    return plan_request(Config::parse("model: {path: \"" GANTRY_SOURCE_DIR "/tests/golden/families/" +
                                      std::string(model) + "\", config: {hidden_size: 1024}, quantize: " + code +
                                      "}\nlora: {r: 4, target_modules: all-linear}\n"
                                      "data: {format: text, path: x, sequence_length: 16, batch_size: 4}\n"))
        .workload.trained.quantised;
  };
  const auto fp8 = request("deepseek_v3", "fp8"), mxfp4 = request("gpt_oss", "mxfp4");
  EXPECT_EQ(fp8.at("layers.1.mlp.experts.gate_up_proj"), (1024. + 4 * 8) / 4096);
  EXPECT_EQ(fp8.at("layers.0.mlp.gate_proj.weight"), (1024. + 4 * 8) / 4096);
  EXPECT_EQ(mxfp4.at("layers.1.mlp.experts.gate_up_proj"), (512. + 32) / 4096);
  EXPECT_FALSE(mxfp4.contains("layers.1.self_attn.q_proj.weight"));
  EXPECT_FALSE(request("deepseek_v3", "nf4").contains("layers.1.mlp.experts.gate_up_proj"));
}

// In the student's layout, the two tensor ranks have half of the teacher each. In its own, each has all of it.
TEST(PlannedTeacher, HasItsLayout) {
  const auto estimated = [](const std::string& objective) {
    const PlanRequest request = plan_request(
        Config::parse("model: {policy: llama, config: {hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, "
                      "num_attention_heads: 4, vocab_size: 211}}\nparallel: {tensor: 2, data: 1}\n"
                      "data: {format: text, path: x, sequence_length: 16, batch_size: 4}\n" +
                      objective));
    const Cluster two = with_ranks(load_cluster("a100_80g"), 2, /*grows=*/true);
    return estimate(request.workload, request.stated, two);
  };
  const std::string teacher =
      "train: {objective: {name: distill, teacher: \"" GANTRY_SOURCE_DIR "/tests/golden/llama\"";
  const Estimate without = estimated(""), shared = estimated(teacher + "}}\n"),
                 own = estimated(teacher + ", teacher_parallel: {tensor: 1}}}\n");
  EXPECT_EQ(without.memory[0].teacher, 0);
  const double logits = 4. * 4 * 16 * 106;  // half of the vocabulary in float32
  const double weights = shared.memory[0].teacher - logits;
  EXPECT_NEAR((own.memory[0].teacher - logits) / weights, 2, 0.01);
  EXPECT_GT(shared.seconds.optimizer, without.seconds.optimizer);
  EXPECT_EQ(shared.seconds.tensor, without.seconds.tensor);
  EXPECT_THAT([&] { estimated(teacher + ", teacher_parallel: {tensor: 4}}}\n"); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("of the teacher")));
}

TEST(TrainedPart, RefusesAnAdapterInOneLine) {
  const auto refusal = [](const std::string& lora) -> std::string {
    try {
      adapted_request("qv", lora);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("{path: /none}"), HasSubstr("/none/adapter_config.json"));
  EXPECT_THAT(refusal("{r: 2, path: \"" + kAdapted + "qv/adapter\"}"),
              HasSubstr("lora.r: the value differs from the one in"));
  EXPECT_THAT(refusal("{path: \"" + kAdapted + "experts/adapter\"}"), HasSubstr("matches nothing"));
}

// Neither several rows for each sample nor the rule against pipelines is in a plan.
TEST(TrainedPart, GroupsOfTextsAreRefused) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "1_Pooling");
  scratch.write("config.json", gantry::testing::read_file(GANTRY_SOURCE_DIR "/tests/golden/llama/config.json"));
  scratch.write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                                    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])");
  scratch.write("1_Pooling/config.json", "{}");
  const auto planned = [&](const char* pairs) {
    return plan_request(
        Config::parse(fmt::format("model: {{path: {}, config: {{sentence_pairs: {}}}}}\n"
                                  "data: {{format: tensors, path: x, sequence_length: 16, batch_size: 4}}\n",
                                  scratch.path(), pairs)));
  };
  EXPECT_TRUE(planned("false").workload.model.sentence);
  EXPECT_THAT(gantry::testing::thrown_by<ConfigError>([&] { planned("true"); }),
              HasSubstr("model.config.sentence_pairs: a plan does not count the texts of a sample"));
}

}  // namespace
}  // namespace gantry::planner
