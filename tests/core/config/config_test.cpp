#include "gantry/core/config.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "thrown_by.h"

namespace gantry {
namespace {

std::string fault_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  return testing::thrown_by<ConfigError>([&] { Config::parse(text, "c.yaml", sets); });
}

constexpr const char* kModel = "model: {policy: gpt2}\n";

struct BadCase {
  const char* text;  // after kModel, unless it begins with "!"
  const char* said;  // text that the message must contain
};

// Line and column are those of the key.
const BadCase kBadCases[] = {
    {"train: {objective: {name: distill, teacher: x, top_k: 4, teacher_cache: y, hidden_weight: 1}}",
     "train.objective.hidden_weight: 1 needs the hidden states of the teacher, but top_k stores none"},
    {"data: {format: images, path: x, flip: 1.5}", "data.flip: '1.5'; expected a probability from 0 to 1"},
    {"lora: {target_modules: [q_proj]}\nexperts: {bias_update: 0.001}", "experts.bias_update: the biases of experts"},
    {"paralel: {tensor: 2}", "c.yaml:2:1: paralel: unknown key"},
    {"paralel: {tensor: 2}", "did you mean 'parallel'?"},
    {"parallel: {tensr: 2}", "c.yaml:2:12: parallel.tensr: unknown key"},
    {"parallel: {tensor: 2, tensor: 3}", "parallel.tensor: the key appears twice"},
    {"parallel: {tensor: two}", "parallel.tensor: 'two'; expected a whole number from 1"},
    {"parallel: {tensor: 0}", "parallel.tensor: '0'"},
    {"parallel: {tensor: -1}", "'-1'"},
    {"parallel: {tensor: 1.5}", "'1.5'"},
    {"parallel: {tensor: 0x10}", "'0x10'"},
    {"parallel: {tensor: 99999999999999999999}", "'99999999999999999999'"},
    {"parallel: {tensor: [2]}", "the value is a list"},
    {"parallel: {tensor: }", "the key has no value"},
    {"parallel: 3", "parallel: the value is not a mapping"},
    {"parallel: {order: [pp, tp]}", "a permutation of [pp, dp, tp]"},
    {"parallel: {order: [pp, dp, tp, ep]}", "a permutation of [pp, dp, tp]"},
    {"parallel: {order: [cp, dp, pp, cp, tp]}", "a permutation of [pp, dp, tp]"},
    {"parallel: {context: 0}", "parallel.context: '0'; expected a whole number from 1"},
    {"parallel: {expert: none}", "parallel.expert: 'none'; expected a whole number from 1"},
    {"parallel: {tensor: 2, expert: 2}", "set parallel.sequence_parallel to true, or parallel.tensor to 1"},
    {"experts: {capacity_factor: 1.25}",
     "experts.capacity_factor: the key is not supported; expected a configuration without it: experts accept"},
    {"experts: {aux_loss: 0.1}", "experts.aux_loss: the key has no effect with experts.balance none"},
    {"experts: {balance: sequence}", "experts.balance: the coefficient of the loss sequence is 0"},
    {"experts: {balance: batch}", "one of none, sequence, microbatch, transformers"},
    {"experts: {dispatch: all_gather}", "the key has no effect with parallel.expert 1"},
    {"experts: {balnce: none}", "did you mean 'balance'?"},
    {"parallel: {tensor: 1000, pipeline: 1000, context: 2}", "tensor 1000 * pipeline 1000 * context 2 * data 1 ranks"},
    {"parallel: {order: pp}", "the value is not a list"},
    {"parallel: {zero: 4}", "from 0 to 3"},
    {"parallel: {sequence_parallel: yes}", "true or false"},
    {"schedule: {name: 1f2b}", "did you mean '1f1b'?"},
    {"schedule: {name: zb_h9}", "'zb_h9' is not supported by this version"},
    {"schedule: {microbatches: 0}", "schedule.microbatches: '0'"},
    {"schedule: {microbatches: 2, microbatch_size: 2}", "both microbatch_size and microbatches are set"},
    {"schedule: {layers: [1, -2]}", "schedule.layers: entry 2 is '-2'"},
    {"parallel: {pipeline: 2}\nschedule: {layers: [1, 2, 3]}",
     "c.yaml:3:12: schedule.layers: the list has 3 stages with 6 layers, but pipeline 2 * chunks 1 = 2 stages"},
    {"schedule: {recompute: some}", "one of none, selective, parts, full, auto"},
    {"schedule: {recompute: auto}", "schedule.recompute: the value auto needs a memory limit"},
    {"schedule: {recompute: auto, memory_limit: 20}", "schedule.memory_limit: '20' is not a size"},
    {"train: {offload: all}", "one of none, optimizer, activations, both"},
    {"output: x\ntrain: {log_files: [comet]}",
     "'comet' is not supported; expected a list of tensorboard, events, mlflow, wandb"},
    {"train: {otlp: \"https://host:4318\"}",
     "c.yaml:2:9: train.otlp: 'https://host:4318' needs TLS, which is not supported; expected an address "
     "http://HOST:PORT; run a collector"},
    {"train: {otlp: host:4318}", "'host:4318' is not the address of a collector; expected an address http://HOST:PORT"},
    {"output: x\ntrain: {log_files: [events, events]}", "'events' is listed twice"},
    {"parallel: {context: 2}\ntrain: {device_graphs: true}",
     "c.yaml:2:12: parallel.context: the value 2 needs communication within a stage, which cannot be captured; "
     "expected 1 with "
     "train.device_graphs"},
    {"parallel: {expert: 2}\ntrain: {device_graphs: true}", "parallel.expert: the value 2 needs communication"},
    {"parallel: {zero: 3}\ntrain: {device_graphs: true}",
     "the value 3 gives gradients and parameters new memory in every step"},
    {"train: {objective: {name: distill, teacher: x, top_k: 8}}",
     "train.objective.teacher_cache: the key is missing; expected a directory for the log-probabilities of top_k"},
    {"train: {objective: {name: distill, teacher: x, loss_type: jsd, top_k: 8, teacher_cache: c}}",
     "train.objective.loss_type: jsd compares the probabilities of all tokens, but top_k keeps 8; expected forward "
     "with "
     "top_k; remove one of the two keys"},
    {"train: {objective: {name: distill, teacher: x, top_k: -1}}",
     "train.objective.top_k: '-1'; expected a whole number from 0"},
    {"parallel: {pipeline: 2, vocabulary: pipeline}\ntrain: {objective: {name: dpo}}",
     "c.yaml:2:25: parallel.vocabulary: the value is pipeline, which train.objective dpo does not support; expected "
     "stages with train.objective; remove one of the two keys"},
    {"parallel: {vocabulary: pipeline}\ntrain: {device_graphs: true}",
     "moves embedding and output layer out of the stages"},
    {"schedule: {name: dualpipe_v}\ntrain: {device_graphs: true}",
     "schedule.name: the value dualpipe_v runs a backward pass"},
    {"train: {offload: both, device_graphs: true}", "moves tensors whose addresses a captured graph contains"},
    {"!model: {path: x, quantize: nf4}\ntrain: {device_graphs: true}",
     "model.quantize: the value nf4 reads its table of values from the host in every step"},
    {"optimizer: {name: adamw8bit}\ntrain: {offload: optimizer}",
     "train.offload: the averages of optimizer.name adamw8bit are not moved to the host"},
    {"train: {ema: 1}", "train.ema: '1'; expected a number from 0 to below 1"},
    {"train: {neftune_alpha: 5, device_graphs: true}", "train.neftune_alpha: the noise differs in every step"},
    {"lora: {r: 8, target_modules: all-linear, dropout: 0.1}\ntrain: {device_graphs: true}",
     "lora.dropout: the dropout masks differ in every step"},
    {"data: {format: text}", "data.path: the key is missing"},
    {"data: {path: x}", "data.format: the key is missing"},
    {"data: {format: txt, path: x}", "did you mean 'text'?"},
    {"data: {format: text, path: x, batch_size: 0}", "data.batch_size: '0'"},
    {"data: {format: jsonl, path: x, template_kwargs: [a]}", "data.template_kwargs: the value is not a mapping"},
    {"data: {format: jsonl, path: x, template_kwargs: {add_generation_prompt: true}}",
     "the value contains 'add_generation_prompt', which Gantry itself passes to the template"},
    {"data: {format: jsonl, path: x, template_kwargs: {messages: []}}", "remove data.template_kwargs.messages"},
    {"data: {format: text, path: x, shuffle: maybe}", "true or false"},
    {"optimizer: {lr: 0}", "optimizer.lr: '0'; expected a number above 0"},
    {"optimizer: {lr: .nan}", "'.nan'"},
    {"optimizer: {lr: .inf}", "'.inf'"},
    {"optimizer: {lr: nan}", "'nan'"},
    {"optimizer: {betas: [0.9]}", "betas"},
    {"optimizer: {betas: [0.9, 1.0]}", "from 0 to below 1"},
    {"optimizer: {name: adam}", "did you mean 'adamw'?"},
    {"lr_schedule: {min_lr: 1}", "is above optimizer.lr"},
    {"lr_schedule: {name: linear, min_lr: 1.0e-5, min_lr_ratio: 0.1}", "both min_lr_ratio and min_lr are set"},
    {"lr_schedule: {name: piecewise}", "the list is missing"},
    {"lr_schedule: {name: piecewise, milestones: [5, 9], factors: [0.1]}", "one factor of the peak for each milestone"},
    {"lr_schedule: {name: piecewise, milestones: [9, 5], factors: [0.1, 0.2]}", "not in ascending order"},
    {"lr_schedule: {name: liner}",
     "one of constant, linear, cosine, cosine_with_restarts, wsd, polynomial, inverse_sqrt, piecewise"},
    {"precision: int8", "one of float64, float32, bfloat16, float16"},
    {"train: {steps: 0}", "train.steps: '0'"},
    {"checkpoint: {resume: auto}", "checkpoint.path"},
    {"checkpoint: {path: runs, allow_changes: true}", "with checkpoint.resume none"},
    {"comm: {timeout_seconds: 0}", "comm.timeout_seconds: '0'"},
    {"comm: {backend: gloo}", "one of auto, local, mpi, tcp, nccl, ipc"},
    {"libraries: lib.so", "the value is not a list"},
    {"model: {policy: gpt2}", "model: the key appears twice"},
    {"!parallel: {tensor: 2}", "model: the section is missing"},
    {"!modle: {policy: gpt2}", "c.yaml:1:1: modle: unknown key"},
    {"!modle: {policy: gpt2}", "did you mean 'model'?"},
    {"!model: {policy: \"\"}", "c.yaml:1:1: model: neither policy nor path is set"},
    {"!model: {config: {n_layer: 2}}", "neither policy nor path is set"},
    {"!model: {policy: gpt2, config: 3}", "model.config: the value is not a mapping"},
    {"!model: {policy: gpt2, config: {initializer_range: .inf}}", "is not finite"},
    {"!model: &a {policy: gpt2}", "anchors are not supported"},
    {"!model: {policy: gpt2}\nparallel: *a", "c.yaml:2"},
    {"!model: !!map {policy: gpt2}", "the tag"},
    {"!model: {policy: gpt2}\n---\nmodel: {policy: gpt2}", "c.yaml:2:1: several documents"},
    {"!model: {policy: gpt2", "c.yaml:"},
    {"!// a comment\nmodel: {policy: gpt2}", "c.yaml:1:1: comments that begin with // are not supported"},
    {"!,", "c.yaml"},
    {"![1, 2]", "the value is not a mapping"},
    {"parallel: {tensor: \"2\"}", "the value is the string '2'"},
    {"data: {format: text, path: x, shuffle: \"true\"}", "the value is the string 'true'"},
    {"!model: {policy: gpt2, config: {a: 1, a: 2}}", "model.config.a: the key appears twice"},
    {"!model: {policy: gpt2, config: {<<: {a: 1}}}", "c.yaml:1:32: model.config.<<: the key is a merge key"},
    {"!model: {policy: gpt2, config: {[1]: 2}}", "model.config.(a key): the key is not a string"},
    {"[1]: 2", "c.yaml:2:1: (a key): the key is not a string"},
    {"!model: {policy: gpt2, config: {a: {b: -.inf}}}", "model.config.a.b: '-.inf' is not finite"},
    {"!model: {policy: gpt2, config: {a: 1e999}}", "'1e999' is not finite"},
    {"output: \"a\\0b\"", "the string contains a zero character"},
    {"output: \xff\xfe", "c.yaml:2:9: the text is not UTF-8"},
    {"schedule: {layers: nonsense}", "c.yaml:2:12: schedule.layers: 'nonsense' at position 1: 'n' is not one of"},
    {"schedule:\n  chunks: 1\n  layers: \"Et*2|(t|L\"", "c.yaml:4:3: schedule.layers: 'Et*2|(t|L' at position 6: '('"},
    {"schedule: {layers: \"Ett*|L\"}", "c.yaml:2:12: schedule.layers: 'Ett*|L' at position 4: '*' without a count"},
    {"schedule: {layers: \"EtL|t\"}", "'EtL|t' at position 4: a part follows the loss 'L'"},
    {"schedule: {layers: \"Et|(tE)*2L\"}", "at position 6: the embedding 'E' is not at the start, or appears twice"},
    {"schedule: {layers: \"Et|t\"}", "at position 5: the loss 'L' is missing at the end"},
    {"schedule: {layers: \"EtéL\"}", "at position 3: 'é' is not one of"},
    {"schedule: {layers: \"Et|tL\"}",
     "c.yaml:2:12: schedule.layers: 'Et|tL' has 2 stages with 2 layers, but pipeline 1"},
    {"schedule: {layers: [2, two]}", "c.yaml:2:12: schedule.layers: entry 2 is 'two'; expected whole numbers"},
    {"!model: {policy: gpt2, config: {n_layer: 4}}\nschedule: {layers: [3]}",
     "c.yaml:2:12: schedule.layers: the list has 3 layers, but the model has 4"},
    {"parallel: {data: 2}\ndata: {format: text, path: x, batch_size: 1}",
     "1 samples over data 2 replicas leave 1 without one"},
    {"parallel: {tensor: 100000, pipeline: 100000}", "at most 1000000"},
};

TEST(ConfigErrors, EachSaysWhereAndWhat) {
  for (const auto& [text, said] : kBadCases) {
    const std::string full = text[0] == '!' ? text + 1 : std::string(kModel) + text;
    EXPECT_NE(fault_of(full).find(said), std::string::npos)
        << full << "\n  said: " << fault_of(full) << "\n  not:  " << said;
    EXPECT_EQ(fault_of(full).find('\n'), std::string::npos);
  }
}

TEST(ConfigErrors, AllAreReportedAtOnce) {
  const std::string said =
      fault_of(std::string(kModel) + "parallel: {tensor: 0}\nschedule: {microbatches: x}\ntrain: {stepz: 3}");
  for (const char* part : {"parallel.tensor", "schedule.microbatches", "train.stepz"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
}

TEST(ConfigErrors, HostileTextIsRefusedQuickly) {
  EXPECT_NE(fault_of(std::string(100000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(fault_of(std::string(2 << 20, ' ')).find("bytes"), std::string::npos);
  EXPECT_NE(fault_of(std::string("model: \0{}", 10)).find("zero byte"), std::string::npos);
  std::string deep = "model:\n";
  for (int i = 1; i < 60; ++i) deep += std::string(i, ' ') + "a:\n";
  EXPECT_NE(fault_of(deep).find("nested deeper"), std::string::npos);
}

TEST(ConfigErrors, AHostileFileDoesNotFloodTheScreen) {
  std::string many = kModel;
  for (int i = 0; i < 1000; ++i) many += "key" + std::to_string(i) + ": 1\n";
  EXPECT_LT(fault_of(many).size(), 20000u);
  EXPECT_NE(fault_of(many).find("; and 960 more faults"), std::string::npos);
  EXPECT_LT(fault_of(kModel + std::string(500000, 'k') + ": 1").size(), 2000u);
}

TEST(ConfigErrors, ListEachKeyOnce) {
  for (const char* section : {"parallel", "schedule", "optimizer", "data", "train", "checkpoint", "evaluation"}) {
    try {
      Config::parse(fmt::format("model: {{policy: gpt2}}\n{}: {{zzzzzzzz: 1}}\n", section));
      FAIL() << section;
    } catch (const ConfigError& error) {
      const std::string line = error.what(), mark = "expected one of ";
      ASSERT_NE(line.find(mark), std::string::npos) << line;
      std::istringstream keys(line.substr(line.find(mark) + mark.size()));
      std::set<std::string> seen;
      for (std::string key; std::getline(keys >> std::ws, key, ',');)
        EXPECT_TRUE(seen.insert(key.substr(0, key.find(';'))).second) << key << " in " << line;
    }
  }
}

TEST(Config, ShortNamesOfPrecisionsAreStoredAsTheLongOnes) {
  for (const auto& [given, stored] : std::initializer_list<std::pair<const char*, const char*>>{
           {"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}, {"fp64", "float64"}})
    EXPECT_EQ(Config::parse(fmt::format("model: {{policy: gpt2}}\nprecision: {}\n", given)).precision, stored);
}

TEST(Config, OverridesWinAndAreNamedInErrors) {
  EXPECT_EQ(Config::parse(kModel, "c", {"parallel.tensor=2", "train.steps=7"}).parallel.tensor, 2);
  EXPECT_EQ(fault_of(kModel, {"parallel.tensr=2"}).find("--set parallel.tensr"), 0u);
  EXPECT_THROW(Config::parse(kModel, "c", {"parallel.tensor"}), UsageError);
}

// A section that only an override has created has no line in the file.
TEST(Config, FaultsOfSectionsThatOverridesCreateNameTheOverride) {
  EXPECT_EQ(fault_of(kModel, {"modle.policy=gpt2"}).find("--set modle.policy: modle: unknown key"), 0u)
      << fault_of(kModel, {"modle.policy=gpt2"});
  EXPECT_EQ(fault_of(kModel, {"parallel.tensor=100000", "parallel.pipeline=100000"})
                .find("--set parallel.pipeline: parallel: tensor 100000"),
            0u);
  EXPECT_EQ(fault_of(kModel, {"data.path=x"}).find("--set data.path: data.format: the key is missing"), 0u);
  EXPECT_EQ(fault_of(std::string(kModel) + "data: {shuffle: 1}", {"data.path=x"}).find("c.yaml:2:8: data.shuffle"), 0u);
}

TEST(Config, DefaultsAreThoseOfTheDesign) {
  const Config config = Config::parse(kModel);
  EXPECT_EQ(config.ranks(), 1);
  EXPECT_EQ(config.schedule.name, "1f1b");
  EXPECT_EQ(config.train.seed, 1u);
  EXPECT_TRUE(config.data.shuffle);
  EXPECT_FALSE(config.optimizer.clip_grad_norm.has_value());
  EXPECT_EQ(config.checkpoint.resume, "none");
  EXPECT_THROW(config.require_training(), ConfigError);
}

TEST(Config, TheResolvedWholeReadsBackAsItself) {
  const Config config = Config::parse(
      "model: {policy: gpt2, config: {n_embd: 256, note: \"a \\\"quoted\\\" one\", resid_pdrop: 0.0, tie: true}}\n"
      "parallel: {tensor: 2, pipeline: 2, data: auto}\nschedule: {microbatches: 8, layers: [2, 3]}\n"
      "data: {format: text, path: \"a b.txt\", batch_size: 4}\noptimizer: {lr: 3.0e-4, betas: [0.9, 0.95], "
      "clip_grad_norm: 1.0, no_decay: [\"*.bias\"]}\n"
      "train: {steps: 3}\ncheckpoint: {path: x, every: 2, keep: 1, resume: auto, allow_changes: true}\noutput: runs\n");
  const std::string text = config.to_yaml();
  EXPECT_EQ(Config::parse(text).to_yaml(), text);
  EXPECT_NE(config.model.config_json.find("\"tie\":true"), std::string::npos);
}

TEST(Config, ZeroMeansAtTheEndAndAllAndGlobsAreText) {
  const Config config = Config::parse(
      kModel, "c",
      {"checkpoint.path=x", "checkpoint.every=0", "checkpoint.keep=0", "data.format=text", "data.path=*.txt"});
  EXPECT_EQ(config.checkpoint.every, 0);
  EXPECT_EQ(Config::parse(config.to_yaml()).checkpoint.every, 0);
  EXPECT_EQ(Config::parse(kModel, "c", {"checkpoint.path=x"}).checkpoint.every, 500) << "a crash loses no whole run";
  EXPECT_EQ(config.data.path, "*.txt");
}

TEST(Config, JsonIsReadToo) {
  EXPECT_EQ(Config::parse("{\"model\": {\"policy\": \"gpt2\"}, \"parallel\": {\"pipeline\": 3}}").parallel.pipeline, 3);
}

}  // namespace
}  // namespace gantry
