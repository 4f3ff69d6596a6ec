// The configuration: a YAML file, checked strictly, as plain values. docs/configuration.md describes every key.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gantry/core/axis.h"
#include "gantry/core/used_keys.h"

namespace gantry {

struct ModelConfig {
  std::string policy;       // gpt2 | llama | bert | a registered name; empty: `path` says it, or the model's class
  std::string path;         // a Hugging Face directory, or empty
  std::string config_json;  // the model's own keys as a JSON object, or empty
};

// Adapters of low rank on linear layers, trained in place of the model: Hu et al., LoRA (arXiv 2106.09685).
struct LoraConfig {
  int r = 0;         // the rank; 0: there are no adapters, or `path` says it
  double alpha = 0;  // what an adapter adds is scaled by alpha / r
  double dropout = 0;
  std::vector<std::string> target_modules;      // names of linear layers; or "all-linear" alone
  std::vector<std::string> modules_to_save;     // trained whole beside the adapters
  bool rslora = false;                          // scaled by alpha / sqrt(r)
  std::map<std::string, int> rank_pattern;      // ranks of the layers whose paths end with an expression
  std::map<std::string, double> alpha_pattern;  // likewise
  std::string path;                             // a directory of PEFT's to begin with

  bool is_on() const { return r > 0 || !path.empty(); }
};

struct ParallelConfig {
  int tensor = 1;
  int pipeline = 1;
  int data = 0;     // 0: auto
  int context = 1;  // ranks that share a sequence
  // auto | all_gather | ring | ulysses | ulysses_ring: how those attend to each other's tokens
  std::string context_method = "auto";
  int ulysses = 0;  // of ulysses_ring: so many of them exchange heads
  int expert = 1;   // ranks that share the experts of a layer, among those of data, context and tensor
  bool sequence_parallel = false;
  int zero = 0;                 // 0 | 1 (the optimizer's state is partitioned over the batch axes) | 2 (gradients too)
  int shard = 0;                // of zero 3: over how many of the batch ranks parameters are cut; 0: auto
  int tensor_overlap = 1;       // pieces of rows in which layers that are split send what they gather and sum
  std::string gather = "auto";  // of zero 3: step | window | microbatch | auto
  std::string vocabulary = "stages";  // stages | pipeline (embedding and head are cut over pp) | auto
  double bucket_mb = 25;              // gradients that travel together over dp, in MiB
  std::vector<std::string> order = {axis::kPipeline, axis::kData, axis::kTensor};
};

// Of models with experts.
struct ExpertsConfig {
  std::string dispatch = "all_to_all";  // all_to_all | all_gather: how tokens reach experts of other ranks
  std::string balance = "none";         // none | sequence | microbatch | transformers: the loss that balances them
  double aux_loss = 0;                  // that loss's coefficient
  double z_loss = 0;
  double bias_update = 0;  // DeepSeek-V3's, a step; 0: biases stay
};

struct ScheduleConfig {
  std::string name = "1f1b";
  std::optional<int> microbatches;
  std::optional<int> microbatch_size;
  int chunks = 1;
  int group_size = 0;  // of interleaved_1f1b: microbatches that a chunk takes in a row; 0: as many as ranks
  std::variant<std::string, std::vector<int>> layers =
      std::string("default");    // default | balanced | layout string | list
  int vocabulary_algorithm = 2;  // of parallel.vocabulary pipeline: 1 or 2 of arXiv 2411.05288
  std::string recompute = "none";
  std::int64_t memory_limit = 0;      // bytes of a rank, which `recompute: auto` keeps to; 0: none stated
  std::vector<int> recompute_layers;  // the first so many of each stage: one number, or one per stage; empty: all
};

// One of several sources of samples.
struct DataSourceConfig {
  std::string path;
  double weight = 1;  // its share of the samples is this over the sum of all
};

// How pictures become what a model reads. What is not given is as the model's preprocessor_config.json says.
struct ImageConfig {
  std::optional<int> image_size;        // pixels of a side; the model's image_size
  std::optional<int> resize;            // before its centre is cut out the shorter side has so many; 0: it is all taken
  std::string interpolation;            // bilinear | bicubic; empty: not given
  std::vector<double> mean, deviation;  // of each colour; empty: not given
  std::string crop = "random";          // random | center: what is trained on; evaluations take the centre
  std::vector<double> crop_scale{0.08, 1}, crop_ratio{3.0 / 4, 4.0 / 3};  // bounds of a drawn part: of the area, w : h
  double flip = 0.5;                                                      // the share that is mirrored in training
};

struct DataConfig {
  std::string format;  // text | tokens | megatron | jsonl | squad | tensors | images; empty: there is no data section
  std::string path;    // or, in its place,
  std::vector<DataSourceConfig> sources;
  std::string tokenizer;                // of text and squad: a file or folder, or "bytes" for text; empty: the model's
  std::string chat_template;            // of messages: a known template's name; empty: the tokenizer's own
  std::string loss_on = "completions";  // completions | all: of prompts and messages
  std::string bad_lines = "stop";       // stop | skip: lines of jsonl that hold no sample
  bool document_mask = false;           // tokens of packed samples see their own document alone
  int sequence_length = 128;
  int target_length = 0;  // tokens of a completion that a decoder is trained on; 0: sequence_length
  int batch_size = 32;    // global
  bool shuffle = true;
  int prefetch = 2;  // batches that a thread prepares ahead; 0: none
  ImageConfig pictures = {};
};

// Parameters whose names match get values of their own.
struct OptimizerGroupConfig {
  std::vector<std::string> match;  // patterns of parameter names
  std::optional<double> lr, weight_decay;
};

struct OptimizerConfig {
  std::string name = "adamw";  // adamw | sgd | lion | muon
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0.9;  // sgd's and muon's
  std::optional<double> clip_grad_norm;
  std::vector<std::string> no_decay;         // patterns of parameter names
  std::vector<OptimizerGroupConfig> groups;  // the first that matches a parameter is its group
};

struct LrScheduleConfig {
  std::string name = "constant";  // constant | linear | cosine | wsd (warm-up, stable, decay)
  int warmup_steps = 0;
  double warmup_ratio = 0;  // in place of warmup_steps: their share of train.steps
  int decay_steps = 0;      // wsd's last steps, which fall to min_lr
  double min_lr = 0;
};

// Of precision float16: gradients are scaled so that small ones are not lost.
struct LossScaleConfig {
  double initial = 65536;
  int growth_interval = 2000;  // steps without overflow until it is doubled
  int hysteresis = 2;          // overflows in a row until it is halved
};

struct EvaluationConfig {
  std::string path;                  // held-out data of data.format; empty: no evaluation
  int every = 0;                     // steps; 0: at the end only
  int batches = 0;                   // at most so many of data.batch_size; 0: every sample once
  std::string choices;               // a jsonl of contexts and choices to score; empty: none
  std::vector<std::string> prompts;  // continued at each evaluation
  int prompt_tokens = 32;            // by so many tokens
};

struct TrainConfig {
  int steps = 0;
  double epochs = 0;  // in place of steps
  std::uint64_t seed = 1;
  int log_every = 1;
  int audit_every = 0;              // steps between comparisons of replicas; 0: never
  std::string non_finite = "stop";  // stop | skip: a step whose gradient norm is not finite
  double label_smoothing = 0;       // of the cross entropy, over the whole vocabulary
  double max_minutes = 0;           // after so many the run ends with its step; 0: it goes on to `steps`
  std::vector<std::string> freeze;  // patterns of names of parameters that are not trained
  double neftune_alpha = 0;         // noise on embeddings: Jain et al., NEFTune (arXiv 2310.05914)
  int patience = 0;                 // evaluations without a lower held-out loss until the run ends; 0: no such end
  std::string offload = "none";     // none | optimizer | activations | both: what waits in host memory
  bool device_graphs = false;       // a stage's work is recorded on the device once, and replayed
};

struct CheckpointConfig {
  std::string path;        // empty: no checkpoints
  int every = 500;         // steps; 0: at the end only
  int keep = 0;            // 0: all
  bool keep_best = false;  // the one of the lowest held-out loss stays
  std::string load;        // a checkpoint whose weights the run begins with
  bool async = false;
  bool allow_changes = false;   // resume with other data, or another order of it, than the checkpoint's
  std::string resume = "none";  // auto | none | a step folder or its parent
};

struct CommConfig {
  std::string backend = "auto";  // auto | local | mpi | nccl | ipc
  double timeout_seconds = 60;
  int threads_per_rank = 0;         // 0: auto
  bool registered_buffers = false;  // NCCL communicates gradients from memory of its own, without copies
  bool sums_by_rank = false;        // over NCCL too, where sums else go in NCCL's order
  double heartbeat_seconds = 1;     // between signs of life of a rank (comm/control); 0: none are sent
  double lost_after_seconds = 15;   // a rank without a sign of life for so long ends the job
  std::string interface;  // a network interface or address for them; empty: loopback; over hosts it must be named
  int recorder = 1024;    // operations that each rank remembers for `gantry doctor DIR`; 0: none
};

// Steps that are watched in detail: `wait` steps pass, `warmup` are watched and thrown away, `active` are kept; this
// `repeat` times, or to the end of the run for 0.
struct ProfileConfig {
  int wait = 0;
  int warmup = 0;
  int active = 0;  // 0: no profile
  int repeat = 1;
};

struct Config {
  ModelConfig model;
  LoraConfig lora;
  ParallelConfig parallel;
  ExpertsConfig experts;
  ScheduleConfig schedule;
  DataConfig data;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  std::string precision = "float32";
  LossScaleConfig loss_scale;
  EvaluationConfig evaluation;
  TrainConfig train;
  CheckpointConfig checkpoint;
  std::string output;
  CommConfig comm;
  ProfileConfig profile;
  std::vector<std::string> libraries;

  // Shared by all copies of this configuration.
  std::shared_ptr<UsedKeys> used_keys = std::make_shared<UsedKeys>();
  // This program does itself what `key` says, as used_keys.cpp has it ("checkpoint.path"); "" for all keys.
  void mark_used(const std::string& key) const { used_keys->add(key); }

  // Reads and checks a file; `overrides` are "a.b=c" as of --set. All faults are reported in one ConfigError, a line
  // each joined by "; ", with file:line:column. A key that is there and has no effect is a fault (core/config_keys.h).
  // InputError-free: an unreadable file is a ConfigError too.
  static Config load(const std::string& path, const std::vector<std::string>& overrides = {});
  // The same from text; `name` stands for the file in messages.
  static Config parse(const std::string& text, const std::string& name = "config",
                      const std::vector<std::string>& overrides = {});

  // The same from text that to_yaml() wrote, perhaps of an earlier version: keys without effect are passed over, but
  // for those that `overrides` give.
  static Config parse_written(const std::string& text, const std::string& name,
                              const std::vector<std::string>& overrides = {});

  // What `gantry train` needs beyond a valid file: data, train.steps. ConfigError naming the missing keys.
  void require_training() const;
  // The part of it that a program which brings its own data needs: train.steps.
  void require_steps() const;
  // ConfigError where the file leaves the model to the program: `model` without policy and path.
  void require_model() const;
  // The ranks that Gantry starts itself when no launcher did: tensor * pipeline * (data or 1).
  int ranks() const;
  // The resolved whole as YAML that load() accepts again: every key that has an effect.
  std::string to_yaml() const;
  // The same as one JSON object, which load() accepts too.
  std::string to_json() const;
};

}  // namespace gantry
