// The configuration as plain values, parsed from a YAML file and checked strictly. docs/configuration.md describes
// every key.
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

// The sections of the configuration, in the order of the YAML file. Section `model`.
struct ModelConfig {
  std::string policy;  // gpt2 | llama | bert | a registered name; empty: from `path`, or from the class of the model
  std::string path;    // a Hugging Face model directory; empty: none
  std::string config_json;            // Hugging Face configuration keys as a JSON object; empty: none
  std::string unknown_keys = "warn";  // warn | refuse: unknown keys in the config.json at `path`
  std::string quantize;  // nf4 | fp4 | int8: the frozen linear layers in memory; empty: in the type of `precision`
  bool quantize_double = false;  // the scales of nf4 and fp4 are in 8 bits, too
};

// Low-rank adapters that are trained instead of the model: Hu et al., LoRA (arXiv 2106.09685).
struct LoraConfig {
  int r = 0;         // rank of the adapters; 0: no adapters, or the rank is in `path`
  double alpha = 0;  // scale: the output of an adapter is multiplied by alpha / r
  double dropout = 0;
  std::vector<std::string> target_modules;   // module names or paths, or only "all-linear"
  std::vector<std::string> modules_to_save;  // modules that are trained in full in addition to the adapters
  std::vector<int> trainable_token_indices;  // rows of the embedding that are trained in addition to the adapters
  bool rslora = false;                       // multiply by alpha / sqrt(r) instead
  // default | gaussian | pissa | pissa_niter_N | loftq: initial values of the adapters
  std::string init_lora_weights = "default";
  double loraplus_lr_ratio = 1;                 // learning rate of B over that of A: LoRA+ (arXiv 2402.12354)
  bool use_dora = false;                        // train the norms of the weights' rows too: DoRA (arXiv 2402.09353)
  std::map<std::string, int> rank_pattern;      // regular expression at the end of a layer's path -> rank
  std::map<std::string, double> alpha_pattern;  // regular expression at the end of a layer's path -> alpha
  std::string path;                             // a PEFT adapter directory to start from; empty: none

  bool is_on() const { return r > 0 || !path.empty(); }
};

// Section `parallel`: the sizes of the mesh axes, and how the axes are used.
struct ParallelConfig {
  int tensor = 1;    // size of the tp axis
  int pipeline = 1;  // size of the pp axis
  int data = 0;      // 0: auto
  int context = 1;   // number of ranks that share a sequence
  // auto | all_gather | ring | ulysses | ulysses_ring: how these ranks exchange keys and values or heads
  std::string context_method = "auto";
  // For ulysses_ring: number of ranks that exchange heads; 0: auto.
  int ulysses = 0;
  // Number of ranks that share the experts of a layer, out of the ranks of data, context and tensor.
  int expert = 1;
  bool sequence_parallel = false;  // shard activations between tensor-parallel layers along the sequence
  // ZeRO stage over the ranks of data and context: 1 shards the optimizer state, 2 also the gradients, 3 also the
  // parameters.
  int zero = 0;
  // For zero 3: number of data and context ranks over which each parameter is sharded; 0: auto.
  int shard = 0;
  // Number of row chunks into which tensor-parallel layers split their messages, to overlap them with computation.
  int tensor_overlap = 1;
  std::string gather = "auto";        // for zero 3: step | window | microbatch | auto
  std::string vocabulary = "stages";  // stages | pipeline (embedding and head are sharded over pp) | auto
  double bucket_mb = 25;              // maximum size of a gradient bucket in MiB
  std::vector<std::string> order = {axis::kPipeline, axis::kData, axis::kTensor};
};

// Options of models with experts.
struct ExpertsConfig {
  std::string dispatch = "all_to_all";  // all_to_all | all_gather: how tokens reach experts on other ranks
  std::string balance = "none";         // none | sequence | microbatch | transformers: the load-balancing loss
  double aux_loss = 0;                  // coefficient of the load-balancing loss
  // Coefficient of the router z-loss.
  double z_loss = 0;
  double bias_update = 0;  // step size of DeepSeek-V3's expert bias update, per optimizer step; 0: no update
};

// A pipeline schedule, its microbatches, and the distribution of layers over its stages.
struct ScheduleOptions {
  std::string name = "1f1b";           // name of a generator, or path of a CSV file
  std::optional<int> microbatches;     // number per step; not set: 2 * stages, or 1 without a pipeline
  std::optional<int> microbatch_size;  // samples of a microbatch, as an alternative to microbatches
  int chunks = 1;
  int group_size = 0;  // for interleaved_1f1b: consecutive microbatches of one chunk; 0: the pipeline size
  // default | balanced | layout string | list
  std::variant<std::string, std::vector<int>> layers = std::string("default");
  int vocabulary_algorithm = 2;  // for parallel.vocabulary pipeline: algorithm 1 or 2 of arXiv 2411.05288
};

// Section `schedule`: the schedule, and recomputation.
struct ScheduleConfig : ScheduleOptions {
  std::string recompute = "none";  // none | selective | parts | full | auto
  // Memory limit of a rank in bytes, for `recompute: auto`; 0: no limit.
  std::int64_t memory_limit = 0;
  // Number of layers to recompute, counted from the first layer of each stage: one number, or one per stage; empty:
  // all.
  std::vector<int> recompute_layers;
};

// One of several sources of samples.
struct DataSourceConfig {
  std::string path;
  double weight = 1;  // the source's share of the samples is weight / sum of all weights
};

// Image preprocessing. Values that are not set come from the model's preprocessor_config.json.
struct ImageConfig {
  std::optional<int> image_size;  // length of a side in pixels; not set: the model's image_size
  // Length in pixels to which the shorter side is resized before the centre crop; 0: the full image is resized.
  std::optional<int> resize;
  std::string interpolation;            // bilinear | bicubic; empty: not set
  std::vector<double> mean, deviation;  // one value per colour channel; empty: not set
  std::string crop = "random";          // random | center: the crop in training; evaluations use the centre crop
  // Bounds of a random crop: its share of the image's area, and its width / height.
  std::vector<double> crop_scale{0.08, 1}, crop_ratio{3.0 / 4, 4.0 / 3};
  double flip = 0.5;  // probability of a horizontal flip in training
};

// Section `data`.
struct DataConfig {
  std::string format;  // text | tokens | megatron | jsonl | squad | tensors | images; empty: no data section
  std::string path;    // path of the data; empty if `sources` is set
  std::vector<DataSourceConfig> sources;
  // For text, jsonl and squad: a tokenizer file or directory, or "bytes" (text and jsonl); empty: the model's
  // tokenizer.
  std::string tokenizer;
  std::string chat_template;    // for messages: the name of a known template; empty: the tokenizer's template
  std::string template_kwargs;  // variables for the chat template as a JSON object; empty: none
  std::string bos = "auto", eos = "auto";  // auto | always | never: special tokens around texts, see TextEnds
  // completions | all | last: the tokens of prompts and messages that the loss includes.
  std::string loss_on = "completions";
  std::string bad_lines = "stop";  // stop | skip | cut: handling of jsonl lines that cannot be used
  bool document_mask = false;      // packed samples: attention is restricted to the token's own document
  int sequence_length = 128;       // tokens per sample
  std::string objective;           // causal | mlm | labels: the origin of labels; empty: by the model's head
  double mlm_probability = 0.15;   // share of the tokens that mlm masks
  int target_length = 0;           // tokens of a completion for encoder-decoder models; 0: sequence_length
  int batch_size = 32;             // samples per step, over all replicas
  bool shuffle = true;
  int workers = 0;   // threads that encode text and decode the images of a batch; 0: auto
  int prefetch = 2;  // number of batches that a background thread prepares in advance; 0: none
  // Time of strftime_now() in chat templates, in seconds since 1970; 0: now. Not a key: the trainer sets it to the
  // first start of the run.
  std::int64_t started = 0;
  std::string cache = "auto";  // auto | never | a directory: where encoded text is kept
  ImageConfig pictures = {};
};

// Values for the parameters whose names match a pattern.
struct OptimizerGroupConfig {
  std::vector<std::string> match;  // patterns of parameter names; `*` matches any text
  std::optional<double> lr, weight_decay;
};

// Section `optimizer`.
struct OptimizerConfig {
  std::string name = "adamw";  // adamw | adamw8bit | adamw_bf16 | adafactor | sgd | lion | muon
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0.9;  // for sgd and muon
  std::optional<double> clip_grad_norm;
  std::vector<std::string> no_decay;         // patterns of parameter names
  std::vector<OptimizerGroupConfig> groups;  // a parameter belongs to the first group that matches
};

// Section `lr_schedule`; the peak is optimizer.lr.
struct LrScheduleConfig {
  // constant | linear | cosine | cosine_with_restarts | wsd (warm-up, stable, decay) | polynomial | inverse_sqrt |
  // piecewise
  std::string name = "constant";
  int warmup_steps = 0;
  double warmup_ratio = 0;  // alternative to warmup_steps: fraction of train.steps
  int decay_steps = 0;      // wsd: number of last steps, in which the rate decreases to min_lr
  double min_lr = 0;
  double min_lr_ratio = 0;      // alternative to min_lr: fraction of the peak
  double power = 1;             // polynomial
  int cycles = 1;               // cosine_with_restarts
  std::vector<int> milestones;  // piecewise: numbers of steps after which the rate is a new factor of the peak
  std::vector<double> factors;  // piecewise: the factors, one for each milestone
};

// Dynamic loss scaling for precision float16, so that small gradients do not underflow.
struct LossScaleConfig {
  double initial = 65536;
  int growth_interval = 2000;  // number of steps without overflow before the scale is doubled
  int hysteresis = 2;          // number of consecutive overflows before the scale is halved
};

// A prompt that evaluations continue: a text, or a chat as a JSON object with `messages`.
struct EvaluationPrompt {
  std::string text;
  bool is_chat = false;
};

// Section `evaluation`.
struct EvaluationConfig {
  std::string path;                       // held-out data in data.format; empty: no evaluation
  int every = 0;                          // steps between evaluations; 0: only at the end
  int batches = 0;                        // maximum number of batches of data.batch_size; 0: the full evaluation set
  std::string choices;                    // a jsonl file of contexts and choices to score; empty: none
  std::vector<EvaluationPrompt> prompts;  // prompts to continue at each evaluation
  int prompt_tokens = 32;                 // maximum number of new tokens for each prompt
  bool only = false;                      // evaluate the loaded or resumed weights once, without training steps
  bool ema = false;                       // evaluate the averages of train.ema in place of the weights
};

// The sizes of the axes of a teacher with a layout of its own over the ranks of the run.
struct TeacherParallelConfig {
  int tensor = 1;
  int pipeline = 1;
};

// Section `train.objective`: a loss other than that of the model's head. The coefficients have TRL's names.
struct ObjectiveConfig {
  // dpo | ipo | simpo | cpo | orpo | kto | reward | distill; empty: the loss of the model's head
  std::string name;
  double beta = 0.1;           // factor of the log-probabilities; distill: weight of the teacher in the mixture of jsd
  double label_smoothing = 0;  // dpo, cpo: probability that a preference is wrong
  // dpo: sigmoid (also if empty) | hinge | robust; cpo: sigmoid | hinge | ipo; distill: forward (also if empty) |
  // reverse | jsd
  std::string loss_type;
  double cpo_alpha = 0;  // cpo, simpo: weight of the cross entropy of the chosen completions
  double gamma = 0.5;    // simpo: target margin of the rewards
  double desirable_weight = 1, undesirable_weight = 1;    // kto: weights of the two kinds of completions
  double center_rewards_coefficient = 0;                  // reward: coefficient of the square of the sum of two scores
  std::string teacher;                                    // distill: directory of the teacher
  std::optional<TeacherParallelConfig> teacher_parallel;  // distill: layout of the teacher; empty: that of the student
  int top_k = 0;  // distill: tokens of the teacher's distribution that teacher_cache stores; 0: the full distribution
  std::string teacher_cache;  // distill: directory of the stored log-probabilities
  double temperature = 1;     // distill: of both distributions
  double alpha = 0;           // distill: share of the cross entropy of the labels
  double hidden_weight = 0;   // distill: weight of the distance of the last hidden states; 0: they are not compared
  // dpo, ipo, kto: directory of the reference weights, or of an adapter on the base; empty: the initial weights
  std::string reference;
  std::string reference_cache;  // directory of the reference's log-probabilities; empty: they are not stored
  bool is_on() const { return !name.empty(); }
  bool has_reference() const { return name == "dpo" || name == "ipo" || name == "kto"; }
  // Weight of the mean cross entropy of the step's chosen texts.
  double chosen_weight() const { return name == "orpo" ? 1 : cpo_alpha; }
  bool has_preferences() const { return is_on() && name != "distill"; }
};

// Section `train`.
struct TrainConfig {
  int steps = 0;
  double epochs = 0;                // alternative to steps: passes through the data
  std::uint64_t seed = 1;           // for initial weights, dropout and the order of samples
  int log_every = 1;                // steps between lines of progress
  int audit_every = 0;              // steps between comparisons of replicas; 0: never
  std::string non_finite = "stop";  // stop | skip: handling of a step whose gradient norm is not finite
  double label_smoothing = 0;       // label smoothing of the cross entropy, over the full vocabulary
  double max_minutes = 0;           // time limit of the run in minutes; 0: none
  std::vector<std::string> freeze;  // patterns of names of parameters that are not trained
  ObjectiveConfig objective = {};
  double ema = 0;                // decay of the moving average of the weights; 0: no average
  double neftune_alpha = 0;      // noise on embeddings: Jain et al., NEFTune (arXiv 2310.05914)
  int patience = 0;              // evaluations without a new lowest loss before the run ends; 0: no early stopping
  std::string offload = "none";  // none | optimizer | activations | both: data kept in host memory while not in use
  bool device_graphs = false;    // stages are captured as CUDA graphs and replayed
  // tensorboard | events | mlflow | wandb: files in `output` in addition to metrics.jsonl
  std::vector<std::string> log_files = {"tensorboard"};
  std::string otlp;  // address of a collector of OpenTelemetry, to which each rank sends spans; empty: none
};

// Section `checkpoint`.
struct CheckpointConfig {
  std::string path;             // directory of the run's checkpoints; empty: no checkpoints
  int every = 500;              // steps between checkpoints; 0: only at the end
  int keep = 0;                 // number of checkpoints to keep; 0: all
  bool keep_best = false;       // also keep the checkpoint with the lowest held-out loss
  std::string load;             // a checkpoint from which the run takes its initial weights; empty: none
  bool async = false;           // write checkpoints in the background
  bool allow_changes = false;   // allow resuming with other data, or with another order of the samples
  std::string resume = "none";  // auto | none | a step directory or its parent
};

// Section `comm`.
struct CommConfig {
  std::string backend = "auto";     // auto | local | mpi | nccl | ipc
  double timeout_seconds = 60;      // maximum time of a wait for other ranks
  int threads_per_rank = 0;         // 0: auto
  bool registered_buffers = false;  // NCCL reduces gradients in registered memory, without copies
  bool sums_by_rank = false;        // NCCL reductions add in rank order, with additional messages
  double heartbeat_seconds = 1;     // interval of heartbeats in seconds; 0: no heartbeats
  double lost_after_seconds = 15;   // seconds without a heartbeat after which a rank counts as lost and the job ends
  // Network interface or address by which ranks reach the control plane. Empty: loopback. Several hosts need a value,
  // unless `gantry launch` starts the ranks.
  std::string interface;
  int recorder = 1024;  // number of operations that each rank records for `gantry doctor DIR`; 0: none
};

// Section `elastic`: after the loss of a rank, the job continues with the replicas that are left.
struct ElasticConfig {
  int min_replicas = 0;  // 0: no section, so a lost rank ends the job
  int max_replicas = 0;  // 0: auto, the replicas with which the job starts
  bool rejoin = true;    // start lost ranks again
  double heartbeat = 1;  // interval of heartbeats in seconds; a rank that is silent for 5 of them is lost

  bool is_on() const { return min_replicas > 0; }
};

// Profiled steps, in cycles: `wait` steps without profiling, `warmup` profiled steps that are discarded, `active`
// profiled steps that are kept. There are `repeat` cycles; 0: until the end of the run.
struct ProfileConfig {
  int wait = 0;
  int warmup = 0;
  int active = 0;  // 0: no profile
  int repeat = 1;
};

// A full configuration. The default values are those of absent sections. load() and parse() check it, and set the
// defaults of the keys that are absent from a present section, which can differ (lora.r, profile.active).
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
  ElasticConfig elastic;
  ProfileConfig profile;
  std::vector<std::string> libraries;

  // The keys that the file sets and that the program uses. Shared by all copies of this configuration.
  std::shared_ptr<UsedKeys> used_keys = std::make_shared<UsedKeys>();
  // Records that the program itself implements the key ("checkpoint.path"), so that refuse_unused_keys() accepts it; ""
  // for all keys.
  void mark_used(const std::string& key) const { used_keys->add(key); }

  // Reads and checks a file. `overrides` are "a.b=c", like the arguments of --set. Throws one ConfigError with all
  // faults, each with file:line:column, joined by "; ". A key without effect (see core/config/config_keys.h) is a
  // fault. An unreadable file is a ConfigError too, not an InputError.
  static Config load(const std::string& path, const std::vector<std::string>& overrides = {});
  // The same for the text of a configuration. Messages refer to it as `name`.
  static Config parse(const std::string& text, const std::string& name = "config",
                      const std::vector<std::string>& overrides = {});

  // The same for text that to_yaml() wrote, possibly in an earlier version. Keys without effect are ignored, except
  // those that `overrides` set.
  static Config parse_written(const std::string& text, const std::string& name,
                              const std::vector<std::string>& overrides = {});

  // Throws ConfigError that names the missing keys, unless everything that `gantry train` needs is set: data, and one
  // of train.steps, train.epochs and evaluation.only.
  void require_training() const;
  // The same for a program that brings its own data: train.steps, train.epochs or evaluation.only.
  void require_steps() const;
  // Throws ConfigError if `model` has neither policy nor path, so that the program has to provide the model.
  void require_model() const;
  // Returns the number of ranks that Gantry starts if no launcher did: tensor * pipeline * context * max(data, 1).
  int ranks() const;
  // Returns the resolved configuration as YAML that load() accepts: every key that has an effect.
  std::string to_yaml() const;
  // Returns the same as one JSON object, which load() accepts too.
  std::string to_json() const;
};

}  // namespace gantry
