// `gantry config`: the resolved whole, as text and as JSON.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/core/config.h"
#include "program.h"

namespace gantry::testing {
namespace {

using Json = nlohmann::json;

constexpr const char* kConfig =
    "model: {policy: gpt2, config: {n_embd: 16, n_layer: 7, n_head: 2, vocab_size: 300, _name_or_path: \"a "
    "\\\"b\\\"\"}}\n"
    "parallel: {tensor: 2, pipeline: 3, data: 2, order: [dp, pp, tp]}\n"
    "data: {format: text, path: x.txt, sequence_length: 8, batch_size: 20}\n"
    "optimizer: {lr: 1.0e-5, no_decay: [\"*.bias\"]}\ntrain: {steps: 3}\n";

Outcome show(const std::string& text, const std::string& flags = "") {
  const ScratchFolder scratch;
  return run_program(fmt::format("{} config {} {}", gantry_program(), scratch.write("c.yaml", text), flags));
}

TEST(ConfigJson, HasTheConfigurationWithItsTypes) {
  const Outcome run = show(kConfig, "--json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json config = Json::parse(run.out).at("config");
  EXPECT_EQ(config["model"]["config"]["_name_or_path"], "a \"b\"");
  EXPECT_EQ(config["parallel"]["order"], (Json{"dp", "pp", "tp"}));
  EXPECT_EQ(config["optimizer"]["lr"], 1e-5);
  EXPECT_EQ(config["schedule"]["name"], "1f1b");
  EXPECT_EQ(config["data"]["shuffle"], true);
  EXPECT_EQ(config["train"]["steps"], 3);
  EXPECT_EQ(config["train"]["seed"], 1);
  // JSON is YAML, so that a program may edit it and hand it back.
  EXPECT_EQ(Config::parse(config.dump()).to_yaml(), Config::parse(kConfig).to_yaml());
}

TEST(ConfigJson, HasTheMeshTheStagesAndTheStep) {
  const Json all = Json::parse(show(kConfig, "--json").out);
  EXPECT_EQ(all["mesh"]["size"], 12);
  EXPECT_EQ(all["mesh"]["axes"][0], (Json{{"name", "dp"}, {"size", 2}}));
  ASSERT_EQ(all["mesh"]["ranks"].size(), 12u);
  EXPECT_EQ(all["mesh"]["ranks"][9], (Json{{"rank", 9}, {"dp", 1}, {"pp", 1}, {"tp", 1}}));
  ASSERT_EQ(all["stages"].size(), 3u);
  EXPECT_EQ(all["stages"][1], (Json{{"stage", 1},
                                    {"pipeline_rank", 1},
                                    {"first_layer", 2},
                                    {"layers", 3},
                                    {"work", 3.0 * 3072 / (7 * 3072 + 16 * 300)}}));
  EXPECT_EQ(all["step"]["global_batch"], 20);
  EXPECT_EQ(all["step"]["tokens"], 160);
  EXPECT_EQ(all["step"]["replica_batch"], 10);
  EXPECT_EQ(all["step"]["microbatches"], 6);
  EXPECT_EQ(all["step"]["largest_microbatch"], 2);
  EXPECT_DOUBLE_EQ(all["step"]["bubble_rate"], 2.0 / 8);  // (p - 1) / (m + p - 1)
  EXPECT_EQ(all["step"]["peak_activations"], (Json{3, 2, 1}));
}

TEST(ConfigJson, LeavesOutWhatNothingSays) {
  const Json all = Json::parse(show("model: {policy: gpt2}\n", "--json").out);
  EXPECT_EQ(all["stages"], (Json::array({{{"stage", 0}, {"pipeline_rank", 0}}})));
  EXPECT_FALSE(all.contains("step"));
  EXPECT_EQ(all["mesh"]["ranks"], (Json::array({{{"rank", 0}, {"pp", 0}, {"dp", 0}, {"tp", 0}}})));
}

TEST(ConfigJson, AScheduleFileSaysItsOwnStagesAndMicrobatches) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("v.csv", "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");
  const std::string text = fmt::format(
      "model: {{policy: gpt2, config: {{n_layer: 5}}}}\nparallel: {{pipeline: 2}}\n"
      "schedule: {{name: \"{}\", layers: [1, 2, 1, 1]}}\ndata: {{format: text, path: x, batch_size: 4}}\n",
      file);
  const Outcome run = show(text, "--json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json all = Json::parse(run.out);
  EXPECT_EQ(all["step"]["microbatches"], 1);
  ASSERT_EQ(all["stages"].size(), 4u);
  Json last = all["stages"][3];
  // The defaults are those of GPT-2: a layer of 12 * 768 * 768 weights, and a vocabulary of 50257.
  const double head = 50257.0 / (12 * 768);
  EXPECT_NEAR(last["work"].get<double>(), (1 + head) / (5 + head), 1e-12);
  last.erase("work");
  EXPECT_EQ(last, (Json{{"stage", 3}, {"pipeline_rank", 0}, {"first_layer", 4}, {"layers", 1}}));
  EXPECT_NE(show(text, "--set parallel.pipeline=4").err.find("the schedule has 2 ranks"), std::string::npos);
}

TEST(ConfigText, SaysWhatIsRecomputedForALimit) {
  const std::string limited = " --set schedule.recompute=auto --set 'schedule.memory_limit=";
  const Json ample = Json::parse(show(kConfig, "--json" + limited + "1 GiB'").out);
  EXPECT_EQ(ample["recompute"]["how"], "none");
  ASSERT_EQ(ample["recompute"]["memory_bytes"].size(), 3u);
  const double most = ample["recompute"]["memory_bytes"][0];
  const Json scarce = Json::parse(show(kConfig, fmt::format("--json{}{} B'", limited, std::int64_t(0.9 * most))).out);
  EXPECT_NE(scarce["recompute"]["how"], "none");
  for (const double bytes : scarce["recompute"]["memory_bytes"]) EXPECT_LE(bytes, 0.9 * most);
  EXPECT_NE(show(kConfig, limited + "1 GiB'").out.find("recomputed: nothing"), std::string::npos);
  const Outcome refused = show(kConfig, limited + "1 kB'");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("schedule.memory_limit: 1000 B is too small: rank"), std::string::npos) << refused.err;
}

TEST(ConfigText, HasTheSame) {
  const std::string out = show(kConfig, "--set 'schedule.layers=[7, 0, 0]'").out;
  for (const char* part :
       {"mesh: dp 2 x pp 3 x tp 2", "rank 9 (dp 1, pp 1, tp 1)", "stages of 7 layers",
        "stage 0: layers 0 to 6 (7), 81.8% of the work", "stage 1: no layers",
        "20 samples (160 tokens), 10 per replica", "6 microbatches of up to 2", "predicted bubble: 25.0%"})
    EXPECT_NE(out.find(part), std::string::npos) << part << "\nis not in\n" << out;
}

TEST(ConfigText, ShowsTheLayoutOfATeacher) {
  const std::string teacher =
      "--set 'train.objective={name: distill, teacher: x, teacher_parallel: {tensor: 3, pipeline: 2}}'";
  const Outcome run = show(kConfig, teacher);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* part : {"teacher_parallel: {tensor: 3, pipeline: 2}", "mesh of the teacher: dp 2 x pp 2 x tp 3",
                           "rank 9 (dp 1, pp 1, tp 0)"})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\nis not in\n" << run.out;
  EXPECT_EQ(Json::parse(show(kConfig, teacher + " --json").out)["teacher_mesh"]["axes"][2],
            (Json{{"name", "tp"}, {"size", 3}}));
  EXPECT_FALSE(Json::parse(show(kConfig, "--json").out).contains("teacher_mesh"));
  const Outcome refused = show(kConfig, teacher + " --set train.objective.teacher_parallel.tensor=5");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(
      refused.err.find("train.objective.teacher_parallel: tensor 5 * pipeline 2 = 10 does not divide the 12 ranks "
                       "of this job; expected sizes whose product divides the ranks; change tensor or pipeline of "
                       "the teacher"),
      std::string::npos)
      << refused.err;
}

TEST(ConfigText, MarksTheLayersOfAnImageEncoder) {
  const std::string text = "model: {path: \"" GANTRY_SOURCE_DIR
                           "/tests/golden/images/chats/gemma3\", config: {image_encoder: true}}\n"
                           "parallel: {pipeline: 3}\nschedule: {layers: [1, 2, 2]}\n";
  const Outcome run = show(text);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* part : {"stages of 5 layers, of which 2 of the image encoder:",
                           "stage 0: layers 0 to 0 (1), 0 to 0 of the image encoder, ",
                           "stage 1: layers 1 to 2 (2), 1 to 1 of the image encoder, ", "stage 2: layers 3 to 4 (2), "})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\nis not in\n" << run.out;
  const Json stages = Json::parse(show(text, "--json").out)["stages"];
  for (const auto& [stage, layers] : {std::pair(0, 1), {1, 1}, {2, 0}})
    EXPECT_EQ(stages[stage]["image_encoder_layers"], layers) << stage;
}

// Stages of 81.8%, none and 18.2% of the work: the first of three ranks never waits, and works 2.45 times as long as
// with equal ones, where six microbatches take the time of eight.
TEST(ConfigText, SaysWhatTheImbalanceCosts) {
  const std::string uneven = "--set 'schedule.layers=[7, 0, 0]'";
  const Json all = Json::parse(show(kConfig, uneven + " --json").out), step = all["step"];
  EXPECT_NEAR(step["imbalance"].get<double>(), 6 * 3 * all["stages"][0]["work"].get<double>() / 8 - 1, 1e-9);
  EXPECT_GT(step["weighed_bubble_rate"], step["bubble_rate"]);
  const std::string said =
      fmt::format("{:.1f}% with these stages: the imbalance makes the step {:.1f}% longer",
                  100 * step["weighed_bubble_rate"].get<double>(), 100 * step["imbalance"].get<double>());
  EXPECT_NE(show(kConfig, uneven).out.find(said), std::string::npos) << said;
  EXPECT_LT(Json::parse(show(kConfig, "--set schedule.layers=balanced --json").out)["step"]["imbalance"],
            step["imbalance"]);
}

// Both views of the ranks.
TEST(ConfigText, ShowsContextAndExpertsToo) {
  const std::string plain =
      " --set model.policy=mixtral --set 'model.config={num_hidden_layers: 7, num_local_experts: 6, hidden_size: 64, "
      "num_attention_heads: 4, num_key_value_heads: 4}'";
  const std::string flags = plain +
                            " --set parallel.context=2 --set parallel.expert=4 --set parallel.sequence_parallel=true "
                            "--set 'parallel.order=[dp, pp, tp]'";
  const Outcome run = show(kConfig, flags);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* part :
       {"context: 2", "expert: 4", "mesh: dp 2 x pp 3 x cp 2 x tp 2", "rank 14 (dp 1, pp 0, cp 1, tp 0)",
        "pp 3 x edp 2 x ep 4", "rank 14 (pp 0, edp 1, ep 2)", "10 per replica",
        "6 experts over 4 ranks, in 7 layers, 2 per token:", "ep 0: experts 0 to 1 (2)", "ep 3: experts 5 to 5 (1)",
        "bytes that a rank sends in an all-to-all if experts are chosen evenly: 1536"})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\nis not in\n" << run.out;
  const Json all = Json::parse(show(kConfig, flags + " --json").out), mesh = all.at("mesh");
  EXPECT_EQ(all["experts"]["held"], (Json{{0, 2}, {2, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(mesh["size"], 24);
  EXPECT_EQ(mesh["axes"][2], (Json{{"name", "cp"}, {"size", 2}}));
  EXPECT_EQ(mesh["experts"]["axes"],
            (Json{{{"name", "pp"}, {"size", 3}}, {{"name", "edp"}, {"size", 2}}, {{"name", "ep"}, {"size", 4}}}));
  EXPECT_EQ(mesh["experts"]["ranks"][14], (Json{{"rank", 14}, {"pp", 0}, {"edp", 1}, {"ep", 2}}));
  EXPECT_FALSE(Json::parse(show(kConfig, "--json").out).at("mesh").contains("experts"));
  const auto refusal = [&](const std::string& more) { return show(kConfig, plain + more).err; };
  const std::string in_shards = " --set parallel.sequence_parallel=true --set parallel.expert=";
  EXPECT_NE(refusal(in_shards + "3").find("3 over the 4 ranks that share a stage"), std::string::npos);
  EXPECT_NE(refusal(" --set parallel.expert=2").find("set parallel.sequence_parallel to true, or parallel.tensor to 1"),
            std::string::npos);
  EXPECT_NE(refusal(in_shards + "2 --set model.config.num_local_experts=1 --set model.config.num_experts_per_tok=1")
                .find("2 ranks for 1 experts"),
            std::string::npos);
  EXPECT_NE(show(kConfig, in_shards + "2").err.find("the value is 2, but the model has no experts"), std::string::npos);
}

TEST(ConfigText, ShowsWhoHasWhichTokens) {
  const char* shared =
      "model: {policy: llama, config: {num_hidden_layers: 2, num_attention_heads: 8, num_key_value_heads: 1, "
      "hidden_size: 64}}\nparallel: {context: 2}\n"
      "data: {format: text, path: x, sequence_length: 16, batch_size: 4}\n";
  const Outcome run = show(shared);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* part :
       {"sequences of 16 tokens over 2 ranks, by all_gather (2 ranks do not divide the 8 heads and 1 KV heads of a "
        "rank, and 16 tokens over 2 ranks are fewer than 256 each), contiguous:",
        "cp 0: tokens 0 to 7 (8)", "cp 1: tokens 8 to 15 (8)",
        "bytes that a rank sends in the forward of one layer for one sample: all_gather 512, ring 512, ulysses 2304",
        "memory that the largest layer keeps of one sequence for its backward: "})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\nis not in\n" << run.out;
  const Outcome longer =
      show(shared, "--set data.sequence_length=1024 --set model.config.max_position_embeddings=1024");
  for (const char* part : {"by ring (2 ranks do not divide the 8 heads and 1 KV heads of a rank), zigzag:",
                           "cp 0: tokens 0 to 255, 768 to 1023 (512)", "cp 1: tokens 256 to 767 (512)"})
    EXPECT_NE(longer.out.find(part), std::string::npos) << part << "\nis not in\n" << longer.out;
  const Json kept = Json::parse(show(shared, "--json").out).at("context").at("kept_bytes_of_layer");
  // Half of all, and the keys and values that all_gather brings.
  EXPECT_EQ(kept["rank"].get<double>(), kept["alone"].get<double>() / 2 + 512);
  const Json context = Json::parse(show(shared, "--json --set parallel.context_method=ulysses").out).at("context");
  EXPECT_EQ(context["layout"], "contiguous");
  EXPECT_EQ(context["runs"], (Json{{{0, 8}}, {{8, 16}}}));
  EXPECT_EQ(context["bytes_of_layer"]["ulysses"], 2304);
  EXPECT_NE(
      show(shared, "--set parallel.context=16 --set parallel.context_method=ulysses").err.find("8 heads per rank"),
      std::string::npos);
}

TEST(ConfigText, ShowsWhatMixersExchange) {
  const char* shared =
      "model: {policy: mamba2, config: {num_hidden_layers: 2, hidden_size: 48, num_heads: 6, head_dim: 16, n_groups: "
      "1, "
      "state_size: 9}}\nparallel: {context: 3}\n"
      "data: {format: text, path: x, sequence_length: 12, batch_size: 4}\n";
  const Outcome run = show(shared);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  // 2/3 of x, dt and the results of 4 tokens leave the rank; b and c are sent to both others.
  const std::int64_t bytes = (2 * 96 + 6) * 4 * 4 * 2 / 3 + 2 * (2 * 9) * 4 * 4;
  for (const std::string& part :
       {std::string("sequences of 12 tokens over 3 ranks, by all_gather (no layer has attention), contiguous:"),
        fmt::format("bytes that a rank sends in the forward of the largest mixer for one sample: {}\n", bytes)})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\nis not in\n" << run.out;
  EXPECT_EQ(Json::parse(show(shared, "--json").out).at("context").at("bytes_of_mixer"), bytes);
  const Outcome refused = show(shared, "--set parallel.tensor=3");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(
      refused.err.find("parallel.context: the value is 3, but layer 0 of the mamba2 model has Mamba-2 mixers with "
                       "2 heads or channels on a rank of parallel.tensor 3"),
      std::string::npos)
      << refused.err;
}

TEST(ConfigText, FindsLayersThatCannotBeSharded) {
  const Outcome heads = show(kConfig, "--set parallel.tensor=4");
  EXPECT_EQ(heads.exit_code, 3);
  EXPECT_NE(heads.err.find("parallel.tensor: 4 ranks for 2 query heads; expected at most 2; lower parallel.tensor"),
            std::string::npos)
      << heads.err;
  const Outcome encoder = show("model: {policy: t5, config: {num_heads: 2}}\nparallel: {tensor: 3}\n");
  EXPECT_EQ(encoder.exit_code, 3);
  EXPECT_NE(encoder.err.find("parallel.tensor: 3 ranks for 2 heads; expected at most 2"), std::string::npos)
      << encoder.err;
}

// A program that reads stdout must not take half an answer for one.
TEST(ConfigErrors, ComeBeforeAnyOutput) {
  const ScratchFolder scratch;
  const std::string model = scratch.write("config.json", "{\"n_layer\": 2}");
  const std::string of_two_layers = fmt::format("model: {{policy: gpt2, path: \"{}\"}}\n", scratch.path());
  const std::pair<std::string, const char*> wrong[] = {
      {of_two_layers + "parallel: {pipeline: 3}\n", "2 layers over 3 stages"},
      {of_two_layers + "schedule: {layers: [3]}\n", "1 stage with 3 layers in all"},
      {std::string(kConfig) + "precision: float12\n", "c.yaml:6:1: precision"},
      {std::string(kConfig) + "schedule: {layers: \"Et*3|t*2|t*2\"}\n",
       "c.yaml:6:12: schedule.layers: 'Et*3|t*2|t*2' at position 13: the loss 'L' is missing"},
  };
  for (const auto& [text, said] : wrong)
    for (const char* flags : {"", "--json"}) {
      const Outcome run = show(text, flags);
      EXPECT_EQ(run.exit_code, 3) << run.err;
      EXPECT_EQ(run.out, "") << text;
      EXPECT_NE(run.err.find(said), std::string::npos) << run.err;
    }
}

}  // namespace
}  // namespace gantry::testing
