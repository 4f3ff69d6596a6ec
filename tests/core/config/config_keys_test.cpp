// Keys that have no effect in their context, and the list of all keys compared with the keys that the reader
// accepts.
#include "gantry/core/config/config_keys.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sstream>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

const std::string kKeyTestModel = "model: {policy: gpt2}\n";

// Returns the text, with a model section if it has none.
std::string with_model(const std::string& text) { return (text.starts_with("model:") ? "" : kKeyTestModel) + text; }

std::string refusal(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    Config::parse(with_model(text), "c.yaml", sets);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct KeyCase {
  const char* key;    // as in config_keys()
  const char* idle;   // a configuration in which the key has no effect
  const char* says;   // the expected error
  const char* usual;  // a configuration in which the key has an effect
};

const KeyCase kKeyCases[] = {
    {"model.unknown_keys", "model: {policy: gpt2, unknown_keys: refuse}", "the key has no effect without model.path",
     "model: {path: x, unknown_keys: refuse}"},
    {"model.quantize", "model: {policy: gpt2, quantize: nf4}", "the key has no effect without model.path",
     "model: {path: x, quantize: nf4}"},
    {"model.quantize_double", "model: {path: x, quantize_double: true}", "the key has no effect without model.quantize",
     "model: {path: x, quantize: fp4, quantize_double: true}"},
    {"model.quantize", "model: {policy: gpt2, quantize: mxfp4}", "the key has no effect without model.path",
     "model: {path: x, quantize: mxfp4}"},
    {"model.quantize_double", "model: {path: x, quantize: fp8, quantize_double: true}",
     "the key has no effect with model.quantize fp8", "model: {path: x, quantize: fp4, quantize_double: true}"},
    {"model.quantize_double", "model: {path: x, quantize: int8, quantize_double: true}",
     "the key has no effect with model.quantize int8", "model: {path: x, quantize: nf4, quantize_double: true}"},
    {"schedule.chunks", "schedule: {name: a.csv, chunks: 2}", "the key has no effect with schedule a.csv",
     "schedule: {name: interleaved_1f1b, chunks: 2}"},
    {"schedule.group_size", "schedule: {group_size: 2}", "the key has no effect with schedule 1f1b",
     "schedule: {name: interleaved_1f1b, chunks: 2, group_size: 2}"},
    {"schedule.vocabulary_algorithm", "schedule: {vocabulary_algorithm: 1}",
     "the key has no effect with vocabulary stages",
     "parallel: {vocabulary: pipeline}\nschedule: {vocabulary_algorithm: 1}"},
    {"schedule.recompute_layers", "schedule: {recompute_layers: 1}", "the key has no effect without recompute",
     "schedule: {recompute: full, recompute_layers: 1}"},
    {"schedule.recompute_layers", "schedule: {recompute: auto, memory_limit: 1 GiB, recompute_layers: 1}",
     "the key has no effect with recompute auto, which chooses the layers",
     "schedule: {recompute: parts, recompute_layers: 1}"},
    {"schedule.memory_limit", "schedule: {recompute: full, memory_limit: 1 GiB}",
     "the key has no effect with recompute full", "schedule: {recompute: auto, memory_limit: 1 GiB}"},
    {"data.tokenizer", "data: {format: megatron, path: x, tokenizer: t}", "the key has no effect with format megatron",
     "data: {format: text, path: x, tokenizer: bytes}"},
    {"optimizer.betas", "optimizer: {name: sgd, betas: [0.9, 0.95]}", "the key has no effect with optimizer sgd",
     "optimizer: {name: lion, betas: [0.9, 0.95]}"},
    {"optimizer.betas", "optimizer: {name: adafactor, betas: [0.9, 0.95]}",
     "the key has no effect with optimizer adafactor", "optimizer: {name: adamw8bit, betas: [0.9, 0.95]}"},
    {"optimizer.eps", "optimizer: {name: adafactor, eps: 1.0e-8}", "the key has no effect with optimizer adafactor",
     "optimizer: {name: adamw8bit, eps: 1.0e-8}"},
    {"optimizer.eps", "optimizer: {name: lion, eps: 1.0e-8}", "the key has no effect with optimizer lion",
     "optimizer: {eps: 1.0e-8}"},
    {"optimizer.momentum", "optimizer: {momentum: 0.9}", "the key has no effect with optimizer adamw",
     "optimizer: {name: sgd, momentum: 0.9}"},
    {"optimizer.momentum", "optimizer: {name: lion, momentum: 0.9}", "the key has no effect with optimizer lion",
     "optimizer: {name: muon, momentum: 0.9}"},
    {"optimizer.no_decay", "optimizer: {weight_decay: 0, no_decay: [\"*.bias\"]}",
     "the key has no effect with weight_decay 0", "optimizer: {no_decay: [\"*.bias\"]}"},
    {"lr_schedule.decay_steps", "lr_schedule: {name: cosine, decay_steps: 5}",
     "the key has no effect with schedule cosine", "lr_schedule: {name: wsd, decay_steps: 5}"},
    {"lr_schedule.min_lr", "lr_schedule: {min_lr: 1.0e-5}", "the key has no effect with schedule constant",
     "lr_schedule: {name: linear, min_lr: 1.0e-5}"},
    {"lr_schedule.min_lr_ratio", "lr_schedule: {name: inverse_sqrt, min_lr_ratio: 0.1}",
     "the key has no effect with schedule inverse_sqrt", "lr_schedule: {name: cosine, min_lr_ratio: 0.1}"},
    {"lr_schedule.power", "lr_schedule: {power: 2}", "the key has no effect with schedule constant",
     "lr_schedule: {name: polynomial, power: 2}"},
    {"lr_schedule.cycles", "lr_schedule: {name: cosine, cycles: 2}", "the key has no effect with schedule cosine",
     "lr_schedule: {name: cosine_with_restarts, cycles: 2}"},
    {"lr_schedule.milestones", "lr_schedule: {milestones: [5], factors: [0.1]}",
     "the key has no effect with schedule constant", "lr_schedule: {name: piecewise, milestones: [5], factors: [0.1]}"},
    {"lr_schedule.factors", "lr_schedule: {name: linear, milestones: [5], factors: [0.1]}",
     "the key has no effect with schedule linear", "lr_schedule: {name: piecewise, milestones: [5], factors: [0.1]}"},
    {"loss_scale.initial", "loss_scale: {initial: 65536}", "the key has no effect with precision float32",
     "precision: float16\nloss_scale: {initial: 65536}"},
    {"loss_scale.growth_interval", "precision: bfloat16\nloss_scale: {growth_interval: 5}",
     "the key has no effect with precision bfloat16", "precision: float16\nloss_scale: {growth_interval: 5}"},
    {"loss_scale.hysteresis", "loss_scale: {hysteresis: 2}", "the key has no effect with precision float32",
     "precision: float16\nloss_scale: {hysteresis: 2}"},
    {"parallel.context_method", "parallel: {context_method: ring}", "the key has no effect with parallel.context 1",
     "parallel: {context: 2, context_method: ring}"},
    {"parallel.tensor_overlap", "parallel: {tensor_overlap: 2}", "the key has no effect with parallel.tensor 1",
     "parallel: {tensor: 2, tensor_overlap: 2}"},
    {"parallel.ulysses", "parallel: {context: 4, context_method: ring, ulysses: 2}",
     "the key has no effect with context_method ring",
     "parallel: {context: 4, context_method: ulysses_ring, ulysses: 2}"},
    {"data.document_mask", "data: {format: jsonl, path: x, document_mask: true}",
     "the key has no effect with format jsonl", "data: {format: text, path: x, document_mask: true}"},
    {"parallel.shard", "parallel: {zero: 2, shard: 2}", "the key has no effect with parallel.zero 2",
     "parallel: {zero: 3, shard: 2}"},
    {"parallel.gather", "parallel: {gather: step}", "the key has no effect with parallel.zero 0",
     "parallel: {zero: 3, gather: step}"},
    {"experts.dispatch", "experts: {dispatch: all_gather}", "the key has no effect with parallel.expert 1",
     "parallel: {expert: 2}\nexperts: {dispatch: all_gather}"},
    {"experts.aux_loss", "experts: {aux_loss: 0.1}", "the key has no effect with experts.balance none",
     "experts: {balance: sequence, aux_loss: 0.1}"},
    {"evaluation.path", "evaluation: {path: x}", "the key has no effect without data",
     "data: {format: text, path: x}\nevaluation: {path: y}"},
    {"evaluation.every", "data: {format: text, path: x}\nevaluation: {every: 5}",
     "the key has no effect without evaluation.path", "data: {format: text, path: x}\nevaluation: {path: y, every: 5}"},
    {"evaluation.batches", "data: {format: text, path: x}\nevaluation: {batches: 5}",
     "the key has no effect without evaluation.path",
     "data: {format: text, path: x}\nevaluation: {path: y, batches: 5}"},
    {"evaluation.choices", "data: {format: text, path: x}\nevaluation: {choices: y}",
     "the key has no effect without evaluation.path",
     "data: {format: text, path: x}\nevaluation: {path: y, choices: z}"},
    {"evaluation.prompts", "data: {format: text, path: x}\nevaluation: {prompts: [a]}",
     "the key has no effect without evaluation.path",
     "data: {format: text, path: x}\nevaluation: {path: y, prompts: [a]}"},
    {"evaluation.prompt_tokens", "data: {format: text, path: x}\nevaluation: {path: y, prompt_tokens: 5}",
     "the key has no effect without evaluation.prompts",
     "data: {format: text, path: x}\nevaluation: {path: y, prompts: [a], prompt_tokens: 5}"},
    {"evaluation.only", "data: {format: text, path: x}\nevaluation: {only: true}",
     "the key has no effect without evaluation.path",
     "data: {format: text, path: x}\nevaluation: {path: y, only: true}"},
    {"evaluation.ema", "data: {format: text, path: x}\nevaluation: {path: y, ema: true}",
     "the key has no effect without train.ema",
     "data: {format: text, path: x}\nevaluation: {path: y, ema: true}\ntrain: {ema: 0.9}"},
    {"train.patience", "train: {patience: 2}", "the key has no effect without evaluation.path",
     "data: {format: text, path: x}\nevaluation: {path: y}\ntrain: {patience: 2}"},
    {"train.objective.label_smoothing", "train: {objective: {name: ipo, label_smoothing: 0.1}}",
     "the key has no effect with objective ipo", "train: {objective: {name: dpo, label_smoothing: 0.1}}"},
    {"train.objective.loss_type", "train: {objective: {name: simpo, loss_type: hinge}}",
     "the key has no effect with objective simpo", "train: {objective: {name: dpo, loss_type: hinge}}"},
    {"train.objective.beta", "train: {objective: {name: reward, beta: 0.2}}",
     "the key has no effect with objective reward",
     "train: {objective: {name: distill, teacher: x, loss_type: jsd, beta: 0.2}}"},
    {"train.objective.desirable_weight", "train: {objective: {name: dpo, desirable_weight: 2}}",
     "the key has no effect with objective dpo", "train: {objective: {name: kto, desirable_weight: 2}}"},
    {"train.objective.undesirable_weight", "train: {objective: {name: orpo, undesirable_weight: 2}}",
     "the key has no effect with objective orpo", "train: {objective: {name: kto, undesirable_weight: 2}}"},
    {"train.objective.center_rewards_coefficient", "train: {objective: {name: dpo, center_rewards_coefficient: 0.1}}",
     "the key has no effect with objective dpo", "train: {objective: {name: reward, center_rewards_coefficient: 0.1}}"},
    {"train.objective.teacher", "train: {objective: {name: dpo, teacher: x}}",
     "the key has no effect with objective dpo", "train: {objective: {name: distill, teacher: x}}"},
    {"train.objective.teacher_parallel", "train: {objective: {name: dpo, teacher_parallel: {}}}",
     "the key has no effect with objective dpo",
     "train: {objective: {name: distill, teacher: x, teacher_parallel: {}}}"},
    {"train.objective.teacher_parallel.tensor", "train: {objective: {name: dpo, teacher_parallel: {tensor: 2}}}",
     "the key has no effect with objective dpo",
     "train: {objective: {name: distill, teacher: x, teacher_parallel: {tensor: 2}}}"},
    {"train.objective.teacher_parallel.pipeline", "train: {objective: {name: dpo, teacher_parallel: {pipeline: 2}}}",
     "the key has no effect with objective dpo",
     "train: {objective: {name: distill, teacher: x, teacher_parallel: {pipeline: 2}}}"},
    {"train.objective.top_k", "train: {objective: {name: dpo, top_k: 8, teacher_cache: c}}",
     "the key has no effect with objective dpo",
     "train: {objective: {name: distill, teacher: x, top_k: 8, teacher_cache: c}}"},
    {"train.objective.teacher_cache", "train: {objective: {name: distill, teacher: x, teacher_cache: c}}",
     "the key has no effect without train.objective.top_k",
     "train: {objective: {name: distill, teacher: x, loss_type: forward, teacher_cache: c, top_k: 8}}"},
    {"train.objective.temperature", "train: {objective: {name: dpo, temperature: 2}}",
     "the key has no effect with objective dpo", "train: {objective: {name: distill, teacher: x, temperature: 2}}"},
    {"train.objective.alpha", "train: {objective: {name: dpo, alpha: 0.5}}", "the key has no effect with objective dpo",
     "train: {objective: {name: distill, teacher: x, alpha: 0.5}}"},
    {"train.objective.hidden_weight", "train: {objective: {name: dpo, hidden_weight: 0.5}}",
     "the key has no effect with objective dpo", "train: {objective: {name: distill, teacher: x, hidden_weight: 0.5}}"},
    {"train.objective.gamma", "train: {objective: {name: dpo, gamma: 1}}", "the key has no effect with objective dpo",
     "train: {objective: {name: simpo, gamma: 1}}"},
    {"train.objective.cpo_alpha", "train: {objective: {name: dpo, cpo_alpha: 1}}",
     "the key has no effect with objective dpo", "train: {objective: {name: simpo, cpo_alpha: 1}}"},
    {"train.objective.reference", "train: {objective: {name: simpo, reference: x}}",
     "the key has no effect with objective simpo", "train: {objective: {name: ipo, reference: x}}"},
    {"train.objective.reference_cache", "train: {objective: {name: orpo, reference_cache: x}}",
     "the key has no effect with objective orpo", "train: {objective: {name: kto, reference_cache: x}}"},
    {"train.log_files", "train: {log_files: [events]}", "the key has no effect without output",
     "output: x\ntrain: {log_files: [events]}"},
    {"train.device_graphs", "comm: {backend: mpi}\ntrain: {device_graphs: true}",
     "the key has no effect with comm.backend mpi", "train: {device_graphs: true}"},
    {"data.chat_template", "data: {format: text, path: x, chat_template: chatml}",
     "the key has no effect with format text", "data: {format: jsonl, path: x, chat_template: chatml}"},
    {"data.template_kwargs", "data: {format: text, path: x, template_kwargs: {a: 1}}",
     "the key has no effect with format text", "data: {format: jsonl, path: x, template_kwargs: {a: 1}}"},
    {"data.mlm_probability", "data: {format: text, path: x, mlm_probability: 0.2}",
     "the key has no effect without data.objective mlm",
     "data: {format: text, path: x, objective: mlm, mlm_probability: 0.2}"},
    {"data.bos", "data: {format: tokens, path: x, bos: never}", "the key has no effect with format tokens",
     "data: {format: text, path: x, bos: never}"},
    {"data.cache", "data: {format: tokens, path: x, cache: never}", "the key has no effect with format tokens",
     "data: {format: text, path: x, cache: never}"},
    {"data.eos", "data: {format: squad, path: x, tokenizer: t, eos: never}", "the key has no effect with format squad",
     "data: {format: jsonl, path: x, eos: never}"},
    {"data.loss_on", "data: {format: text, path: x, loss_on: all}", "the key has no effect with format text",
     "data: {format: jsonl, path: x, loss_on: all}"},
    {"data.target_length", "data: {format: text, path: x, target_length: 9}", "the key has no effect with format text",
     "data: {format: jsonl, path: x, target_length: 9}"},
    {"data.bad_lines", "data: {format: text, path: x, bad_lines: skip}", "the key has no effect with format text",
     "data: {format: jsonl, path: x, bad_lines: skip}"},
    {"data.image_size", "data: {format: tensors, path: x, image_size: 32}", "the key has no effect with format tensors",
     "data: {format: images, path: x, image_size: 32}"},
    {"data.resize", "data: {format: tensors, path: x, resize: 40}", "the key has no effect with format tensors",
     "data: {format: images, path: x, resize: 40}"},
    {"data.interpolation", "data: {format: tensors, path: x, interpolation: bicubic}",
     "the key has no effect with format tensors", "data: {format: images, path: x, interpolation: bicubic}"},
    {"data.mean", "data: {format: tensors, path: x, mean: [0, 0, 0]}", "the key has no effect with format tensors",
     "data: {format: images, path: x, mean: [0, 0, 0]}"},
    {"data.std", "data: {format: tensors, path: x, std: [1, 1, 1]}", "the key has no effect with format tensors",
     "data: {format: images, path: x, std: [1, 1, 1]}"},
    {"data.crop", "data: {format: tensors, path: x, crop: center}", "the key has no effect with format tensors",
     "data: {format: images, path: x, crop: center}"},
    {"data.flip", "data: {format: tensors, path: x, flip: 0}", "the key has no effect with format tensors",
     "data: {format: images, path: x, flip: 0}"},
    {"data.crop_scale", "data: {format: tensors, path: x, crop_scale: [0.5, 1]}",
     "the key has no effect with format tensors", "data: {format: images, path: x, crop_scale: [0.5, 1]}"},
    {"data.crop_ratio", "data: {format: images, path: x, crop: center, crop_ratio: [1, 1]}",
     "the key has no effect with crop center", "data: {format: images, path: x, crop_ratio: [1, 1]}"},
    {"checkpoint.keep_best", "checkpoint: {path: c, keep_best: true}", "the key has no effect without evaluation.path",
     "data: {format: text, path: x}\nevaluation: {path: y}\ncheckpoint: {path: c, keep_best: true}"},
    {"train.non_finite", "precision: float16\ntrain: {non_finite: stop}",
     "the key has no effect with precision float16", "train: {non_finite: stop}"},
    {"checkpoint.every", "checkpoint: {every: 5}", "the key has no effect without checkpoint.path",
     "checkpoint: {path: c, every: 5}"},
    {"checkpoint.keep", "checkpoint: {keep: 1}", "the key has no effect without checkpoint.path",
     "checkpoint: {path: c, keep: 1}"},
    {"checkpoint.allow_changes", "checkpoint: {path: c, allow_changes: true}",
     "the key has no effect with checkpoint.resume none", "checkpoint: {path: c, resume: auto, allow_changes: true}"},
    {"checkpoint.async", "checkpoint: {async: true}", "the key has no effect without checkpoint.path",
     "checkpoint: {path: c, async: true}"},
    {"comm.registered_buffers", "comm: {backend: mpi, registered_buffers: true}",
     "the key has no effect with comm.backend mpi", "comm: {backend: auto, registered_buffers: true}"},
    {"comm.sums_by_rank", "comm: {backend: ipc, sums_by_rank: true}", "the key has no effect with comm.backend ipc",
     "comm: {backend: nccl, sums_by_rank: true}"},
    {"comm.heartbeat_seconds", "comm: {backend: local, heartbeat_seconds: 2}",
     "the key has no effect with backend local", "comm: {backend: mpi, heartbeat_seconds: 2}"},
    {"comm.interface", "comm: {backend: local, interface: lo}", "the key has no effect with backend local",
     "comm: {interface: lo, heartbeat_seconds: 0}"},
};

TEST(KeysWithoutEffect, AreRefusedWithWhatTheyNeed) {
  for (const auto& [key, idle, says, usual] : kKeyCases) {
    const std::string said = refusal(idle);
    EXPECT_NE(said.find(fmt::format("{}: {}; expected {}; ", key, says, find_config_key(key)->context->needs)),
              std::string::npos)
        << idle << "\n  " << said;
    EXPECT_EQ(said.find("c.yaml:"), 0u) << said;
    EXPECT_EQ(refusal(usual), "") << usual;
  }
}

TEST(KeysWithoutEffect, HaveACaseEach) {
  std::set<std::string> cases, conditional;
  for (const auto& each : kKeyCases) cases.insert(each.key);
  for (const auto& key : config_keys())
    if (key.context) conditional.insert(key.path);
  EXPECT_EQ(cases, conditional);
}

TEST(KeysWithoutEffect, AreRefusedFromTheCommandLineToo) {
  EXPECT_EQ(refusal("", {"lr_schedule.min_lr=1e-5"})
                .find("--set lr_schedule.min_lr: the key has no effect with schedule constant"),
            0u);
  EXPECT_EQ(refusal("lr_schedule: {min_lr: 1.0e-5}", {"lr_schedule.name=cosine"}), "");
  // A file that a run has written, perhaps with an earlier version, may contain keys without effect.
  // Overrides may not.
  const std::string written = kKeyTestModel + "lr_schedule: {name: constant, min_lr: 0}\ncheckpoint: {async: false}\n";
  EXPECT_EQ(Config::parse_written(written, "c").lr_schedule.min_lr, 0);
  EXPECT_THROW(Config::parse_written(written, "c", {"optimizer.momentum=0.5"}), ConfigError);
  EXPECT_THROW(Config::parse_written(written + "zzz: 1\n", "c"), ConfigError);
}

TEST(KeysWithoutEffect, AGroupOfItsOwnValuesIsOne) {
  EXPECT_NE(refusal("optimizer: {groups: [{match: [a]}]}")
                .find("optimizer.groups[0].match: the group has no effect, because it sets neither lr nor"),
            std::string::npos);
  EXPECT_EQ(refusal("optimizer: {groups: [{match: [a], weight_decay: 0}]}"), "");
}

TEST(KeysWithoutEffect, AreLeftOutOfTheResolvedWhole) {
  for (const auto& [key, idle, says, usual] : kKeyCases) {
    const Config config = Config::parse(with_model(usual));
    EXPECT_EQ(Config::parse(config.to_yaml()).to_yaml(), config.to_yaml()) << config.to_yaml();
    EXPECT_EQ(Config::parse(config.to_json()).to_yaml(), config.to_yaml());
  }
  const std::string bare = Config::parse(kKeyTestModel).to_yaml();
  for (const char* key : {"min_lr", "momentum", "async", "loss_scale", "evaluation"})
    EXPECT_EQ(bare.find(key), std::string::npos) << bare;
}

// Returns the keys of a section ("" for the top level), as the reader lists them in its error about an
// unknown key.
std::set<std::string> read_keys(const std::string& section) {
  const std::string unknown = "zzzzzzzzzzzzzzzzzzzzzzzz";
  std::string text = fmt::format("{{{}: 1}}", unknown);
  if (section == "data.sources[]") text = fmt::format("{{format: text, sources: [{{path: x, {}: 1}}]}}", unknown);
  if (section == "optimizer.groups[]") text = fmt::format("{{groups: [{{match: [a], lr: 1, {}: 1}}]}}", unknown);
  if (section == "train.objective") text = fmt::format("{{objective: {{{}: 1}}}}", unknown);
  if (section == "train.objective.teacher_parallel")
    text = fmt::format("{{objective: {{name: distill, teacher: x, teacher_parallel: {{{}: 1}}}}}}", unknown);
  const std::string name = section.substr(0, section.find('.'));
  const std::string full = section.empty()   ? kKeyTestModel + unknown + ": 1\n"
                           : name == "model" ? "model: {policy: gpt2, " + unknown + ": 1}\n"
                                             : kKeyTestModel + name + ": " + text + "\n";
  std::string said;
  try {
    Config::parse(full);
  } catch (const ConfigError& error) {
    said = error.what();
  }
  const std::string before = unknown + ": unknown key; expected one of ";
  const auto begin = said.find(before);
  if (begin == std::string::npos) return {};
  std::string list = said.substr(begin + before.size());
  list = list.substr(0, list.find(';'));
  std::set<std::string> keys;
  std::istringstream names(list);
  for (std::string each; std::getline(names, each, ',');) keys.insert(each.substr(each.find_first_not_of(' ')));
  return keys;
}

TEST(ConfigKeys, AreThoseThatTheReaderKnows) {
  std::map<std::string, std::set<std::string>> sections;
  for (const auto& key : config_keys()) {
    const std::string path = key.path;
    const auto dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    sections[section].insert(dot == std::string::npos ? path : path.substr(dot + 1));
    if (!section.empty() && section.find('.') == std::string::npos) sections[""].insert(section);
  }
  for (const auto& [section, keys] : sections) EXPECT_EQ(read_keys(section), keys) << "section '" << section << "'";
  EXPECT_GE(sections.size(), 14u);
}

// A key that is not set has the default value that the list states.
TEST(ConfigKeys, HaveTheValuesThatTheListGivesThem) {
  const std::string text = kKeyTestModel +
                           "lora: {target_modules: all-linear}\ndata: {format: text, path: x}\nprofile: {}\n" +
                           "train: {objective: {name: simpo}}\n";
  const std::string elastic = kKeyTestModel + "schedule: {microbatch_size: 1}\nelastic: {}\n";
  int compared = 0;
  for (const auto& key : config_keys()) {
    const std::string initial = key.initial, path = key.path;
    const bool is_value = !initial.empty() && initial.find('`') == std::string::npos && initial != "all";
    if (!is_value || key.context || path.find("[]") != std::string::npos) continue;
    const std::string& around = path.starts_with("elastic.") ? elastic : text;
    EXPECT_EQ(Config::parse(around, "c", {path + "=" + initial}).to_yaml(), Config::parse(around).to_yaml()) << path;
    ++compared;
  }
  EXPECT_GT(compared, 30);
}

}  // namespace
}  // namespace gantry
