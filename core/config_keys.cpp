#include "gantry/core/config_keys.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/schedule_names.h"

namespace gantry {
namespace {

using C = const Config&;

bool is_float16(C c) { return c.precision == "float16"; }
bool may_have_processes(C c) { return c.comm.backend != "local"; }
bool saves(C c) { return !c.checkpoint.path.empty(); }

std::string with_schedule(C c) { return "with schedule " + c.schedule.name; }
std::string with_optimizer(C c) { return "with optimizer " + c.optimizer.name; }
std::string with_rates(C c) {
  return "with schedule " + c.lr_schedule.name + (c.lr_schedule.name == "wsd" ? " without decay_steps" : "");
}
std::string with_precision(C c) { return "with precision " + c.precision; }
std::string with_format(C c) { return "with format " + c.data.format; }
bool has_format(C c, std::initializer_list<const char*> formats) {
  return std::any_of(formats.begin(), formats.end(), [&](const char* one) { return c.data.format == one; });
}

// A schedule by name.
const KeyContext kGenerated = {"a schedule by name; a FILE.csv says its own",
                               [](C c) { return !is_schedule_file(c.schedule.name); }, with_schedule};
const KeyContext kInterleaved = {"schedule.name interleaved_1f1b",
                                 [](C c) { return c.schedule.name == "interleaved_1f1b"; }, with_schedule};
const KeyContext kSharedVocabulary = {"parallel.vocabulary pipeline or auto",
                                      [](C c) { return c.parallel.vocabulary != "stages"; },
                                      [](C c) { return "with vocabulary " + c.parallel.vocabulary; }};
const KeyContext kRecomputing = {"schedule.recompute selective, parts or full",
                                 [](C c) { return c.schedule.recompute != "none" && c.schedule.recompute != "auto"; },
                                 [](C c) {
                                   return std::string(c.schedule.recompute == "auto" ? "with recompute auto, which "
                                                                                       "chooses them"
                                                                                     : "without recompute");
                                 },
                                 "state which, or take it out"};
const KeyContext kChoosing = {"schedule.recompute auto", [](C c) { return c.schedule.recompute == "auto"; },
                              [](C c) { return "with recompute " + c.schedule.recompute; },
                              "set schedule.recompute: auto, or take it out"};
const KeyContext kVocabulary = {"data.format text, jsonl or squad",
                                [](C c) {
                                  return has_format(c, {"text", "jsonl", "squad"});
                                },
                                with_format, "take it out; gantry data build makes token files with a tokenizer"};
const KeyContext kPackedDocuments = {"data.format text, tokens or megatron",
                                     [](C c) {
                                       return has_format(c, {"text", "tokens", "megatron"});
                                     },
                                     with_format};
const KeyContext kLines = {"data.format jsonl", [](C c) { return c.data.format == "jsonl"; }, with_format};
const KeyContext kPictures = {"data.format images", [](C c) { return c.data.format == "images"; }, with_format};
const KeyContext kDrawnCrops = {
    "data.format images and data.crop random",
    [](C c) { return c.data.format == "images" && c.data.pictures.crop == "random"; },
    [](C c) { return c.data.format == "images" ? "with crop " + c.data.pictures.crop : with_format(c); }};
const KeyContext kBetas = {"optimizer.name adamw, lion or muon", [](C c) { return c.optimizer.name != "sgd"; },
                           with_optimizer, "take it out; sgd has momentum"};
// Muon steps what is no matrix of a layer as AdamW does.
const KeyContext kAdamW = {"optimizer.name adamw or muon",
                           [](C c) { return c.optimizer.name == "adamw" || c.optimizer.name == "muon"; },
                           with_optimizer};
const KeyContext kMomentum = {"optimizer.name sgd or muon",
                              [](C c) { return c.optimizer.name == "sgd" || c.optimizer.name == "muon"; },
                              with_optimizer, "take it out; adamw and lion have betas"};
const KeyContext kDecaying = {"optimizer.weight_decay above 0", [](C c) { return c.optimizer.weight_decay > 0; },
                              [](C) { return std::string("with weight_decay 0"); }};
const KeyContext kFalling = {
    "lr_schedule.name linear or cosine, or wsd with decay_steps",
    [](C c) { return c.lr_schedule.name == "wsd" ? c.lr_schedule.decay_steps > 0 : c.lr_schedule.name != "constant"; },
    with_rates};
const KeyContext kWsd = {"lr_schedule.name wsd", [](C c) { return c.lr_schedule.name == "wsd"; }, with_rates};
const KeyContext kFloat16 = {"precision float16", is_float16, with_precision};
const KeyContext kNotFloat16 = {"another precision than float16, which skips such a step and lowers its scale",
                                [](C c) { return !is_float16(c); }, with_precision};
const KeyContext kWithData = {"data.format, which held-out data are of", [](C c) { return !c.data.format.empty(); },
                              [](C) { return std::string("without data"); }, "add a data section, or take it out"};
const KeyContext kEvaluating = {"evaluation.path", [](C c) { return !c.evaluation.path.empty(); },
                                [](C) { return std::string("without evaluation.path"); },
                                "say where the held-out data are, or take it out"};
const KeyContext kPrompting = {"evaluation.prompts", [](C c) { return !c.evaluation.prompts.empty(); },
                               [](C) { return std::string("without evaluation.prompts"); }};
const KeyContext kSaving = {"checkpoint.path", saves, [](C) { return std::string("without checkpoint.path"); },
                            "say where checkpoints go, or take it out"};
const KeyContext kKeepingBest = {
    "checkpoint.path and evaluation.path", [](C c) { return saves(c) && !c.evaluation.path.empty(); },
    [](C c) { return std::string(saves(c) ? "without evaluation.path" : "without checkpoint.path"); },
    "say where checkpoints and held-out data are, or take it out"};
const KeyContext kResuming = {"checkpoint.resume auto or a PATH", [](C c) { return c.checkpoint.resume != "none"; },
                              [](C) { return std::string("and nothing is resumed"); }, "say from what, or take it out"};
const KeyContext kContext = {"parallel.context above 1", [](C c) { return c.parallel.context > 1; },
                             [](C) { return std::string("with parallel.context 1"); },
                             "let ranks share sequences, or take it out"};
const KeyContext kTensorRanks = {"parallel.tensor above 1", [](C c) { return c.parallel.tensor > 1; },
                                 [](C) { return std::string("with parallel.tensor 1"); },
                                 "split layers over ranks, or take it out"};
const KeyContext kUlyssesRing = {"parallel.context_method ulysses_ring",
                                 [](C c) { return c.parallel.context_method == "ulysses_ring"; },
                                 [](C c) { return "with context_method " + c.parallel.context_method; }};
const KeyContext kFullyShards = {"parallel.zero 3", [](C c) { return c.parallel.zero == 3; },
                                 [](C c) { return "with parallel.zero " + std::to_string(c.parallel.zero); },
                                 "set parallel.zero: 3, or take it out"};
const KeyContext kExpertRanks = {"parallel.expert above 1", [](C c) { return c.parallel.expert > 1; },
                                 [](C) { return std::string("with parallel.expert 1"); },
                                 "let ranks share the experts, or take it out"};
const KeyContext kBalanced = {"experts.balance other than none", [](C c) { return c.experts.balance != "none"; },
                              [](C) { return std::string("with experts.balance none"); },
                              "name the loss: sequence, microbatch or transformers"};
const KeyContext kDevices = {"comm.backend auto or nccl, and devices",
                             [](C c) { return c.comm.backend == "auto" || c.comm.backend == "nccl"; },
                             [](C c) { return "with comm.backend " + c.comm.backend; }};
const KeyContext kProcesses = {"a comm.backend of several processes", may_have_processes,
                               [](C) { return std::string("with backend local"); }};
std::vector<ConfigKey> make_keys() {
  return {
      {"model.policy", "from `path`", "`gpt2`, `llama`, `bert`, or a registered name"},
      {"model.path", "", "a Hugging Face directory: config.json and model.safetensors"},
      {"model.config", "", "Hugging Face's keys; with `path` they override its config.json"},

      {"lora.r", "8",
       "the rank of adapters, which are trained in place of the model ([docs/fine_tuning.md](fine_tuning.md))"},
      {"lora.alpha", "8", "what an adapter adds is scaled by alpha / r"},
      {"lora.dropout", "0", "of what adapters read"},
      {"lora.target_modules", "",
       "the layers that get an adapter: a list of names or paths, by Hugging Face's names, of linear layers, "
       "embeddings, "
       "routers and stacks of experts' weights (`experts.down_proj`), or `all-linear` (all but the output layer)"},
      {"lora.modules_to_save", "[]", "modules that are trained whole beside the adapters, likewise"},
      {"lora.rslora", "false", "adapters are scaled by alpha / sqrt(r)"},
      {"lora.rank_pattern", "{}", "other ranks: expressions that paths of layers end with, and a rank for each"},
      {"lora.alpha_pattern", "{}", "other alphas, likewise"},
      {"lora.path", "", "a directory of PEFT's with the adapter to begin with; it says what the other keys leave open"},

      {"parallel.tensor", "1", "the size of the axis tp"},
      {"parallel.pipeline", "1", "the size of the axis pp"},
      {"parallel.data", "auto",
       "the size of the axis dp; auto: ranks / (tensor * pipeline * context), and 1 where Gantry starts the ranks "
       "itself"},
      {"parallel.context", "1",
       "the size of the axis cp: ranks that share each sequence "
       "([docs/context_parallelism.md](context_parallelism.md))"},
      {"parallel.context_method", "auto",
       "how ranks attend to each other's tokens: `all_gather`, `ring`, `ulysses`, `ulysses_ring`; auto: by heads, "
       "tokens and hosts, as `gantry config` says",
       &kContext},
      {"parallel.ulysses", "auto",
       "of `ulysses_ring`: so many adjacent ranks exchange heads, and those of equal heads are a ring; auto: the most "
       "that divide the ranks and the heads",
       &kUlyssesRing},
      {"parallel.expert", "1",
       "the size of the axis ep: ranks, of data * context * tensor, that share the experts of a layer "
       "([docs/experts.md](experts.md))"},
      {"parallel.order", "[pp, dp, tp]",
       "the axes, the outermost first; cp may stand among them, else it is just outside tp"},
      {"parallel.sequence_parallel", "false",
       "activations between tensor-parallel layers are split along the sequence"},
      {"parallel.tensor_overlap", "1",
       "in so many pieces of rows linear layers that are split over tp send what they gather and sum: on devices one "
       "travels while the next is computed ([docs/layouts.md](layouts.md#overlap-of-tensor-parallel-communication))",
       &kTensorRanks},
      {"parallel.zero", "0",
       "1: the optimizer's state is partitioned over dp; 2: gradients too; 3: and parameters "
       "([docs/data_parallelism.md](data_parallelism.md))"},
      {"parallel.shard", "auto",
       "over how many of the ranks of data * context parameters are cut, those of context first; fewer than all: "
       "replicas of shards; experts over ranks are cut over shard * tensor / expert of theirs",
       &kFullyShards},
      {"parallel.gather", "auto",
       "when cut parameters are whole: `step` (from the first use to the last), `window` (the stage in use and the "
       "next), `microbatch` (around each use, layer by layer); auto: `microbatch` without a pipeline, else `window`",
       &kFullyShards},
      {"parallel.vocabulary", "stages",
       "`stages`: the first stage has the embedding and the last one the head; `pipeline`: all ranks of a pipeline "
       "share their rows ([docs/layouts.md](layouts.md)); auto: as the simulator has the shorter step"},
      {"parallel.bucket_mb", "25", "MiB of gradients that one collective over dp reduces"},

      {"experts.dispatch", "all_to_all",
       "how tokens reach experts of other ranks: `all_to_all`, or `all_gather` (plain, and slower)", &kExpertRanks},
      {"experts.balance", "none",
       "the loss that balances experts: `none`, `sequence`, `microbatch` or `transformers` "
       "([docs/experts.md](experts.md))"},
      {"experts.aux_loss", "0", "that loss's coefficient", &kBalanced},
      {"experts.z_loss", "0", "the coefficient of the mean squared logsumexp of routers' logits"},
      {"experts.bias_update", "0",
       "what an expert's correction changes by in each step, towards equal numbers of tokens (DeepSeek-V3); 0: it "
       "stays"},

      {"schedule.name", "1f1b", "one of [docs/schedules.md](schedules.md), or a FILE.csv of compute actions"},
      {"schedule.chunks", "the schedule's own", "chunks per rank: 2 for schedules that go forth and back, else 1",
       &kGenerated},
      {"schedule.group_size", "the ranks", "microbatches that a chunk takes in a row", &kInterleaved},
      {"schedule.vocabulary_algorithm", "2",
       "of the two of arXiv 2411.05288: in 2 the backward need not wait for the head's weight gradients, which may "
       "save "
       "one microbatch's activations ([docs/layouts.md](layouts.md))",
       &kSharedVocabulary},
      {"schedule.recompute", "none",
       "`none`, `selective` (attention's core), `parts` (each part of a layer by itself: attention, MLP) or `full` "
       "(whole layers); `auto`: one of these, for as many layers of each stage as `memory_limit` asks for "
       "([docs/layouts.md](layouts.md#memory))"},
      {"schedule.recompute_layers", "all",
       "of each stage the first so many layers: one number, or a list with an entry per stage", &kRecomputing},
      {"schedule.memory_limit", "",
       "the bytes of a rank that `recompute: auto` keeps to, with a unit: `20 GiB`, `80 GB`", &kChoosing},
      {"schedule.microbatches", "twice the stages", "at most a replica's samples"},
      {"schedule.microbatch_size", "", "in place of `microbatches`: samples of one"},
      {"schedule.layers", "default",
       "`default`, `balanced` (by work), `{balanced: FOLDER}` (by the times that the run there has measured), a list "
       "with an entry per stage, or a layout string such as "
       "`\"Et*3\\|(tt\\|)*2t\\|L\"`"},

      {"data.format", "",
       "`text`, `tokens` (little-endian uint16), `megatron` (.bin and .idx), `jsonl` (lines of JSON), "
       "`squad`, `tensors` (a safetensors file of batch entries) or `images` (a folder of pictures for each class): "
       "[docs/data.md](data.md)"},
      {"data.path", "",
       "a file; for text, tokens and jsonl a folder or a glob too; for megatron the prefix of both files; for images "
       "the folder of the classes' folders"},
      {"data.sources", "", "in place of `path`: a list of `{path, weight}`, of one format"},
      {"data.sources[].path", "", "as `data.path`"},
      {"data.sources[].weight", "1", "the source's share of the samples is this over the sum of all"},
      {"data.tokenizer", "`model.path`'s",
       "a folder or file with the vocabulary; for text and jsonl also `bytes`: bytes are tokens 0 to 255, as without "
       "this key "
       "for a vocabulary of 256",
       &kVocabulary},
      {"data.chat_template", "that of the tokenizer's folder",
       "how `messages` are written, by name: `chatml`, `gemma`, `gemma3`, `llama2`, `llama3`, `mistral`, `phi3` or "
       "`zephyr` "
       "([docs/fine_tuning.md](fine_tuning.md#chats))",
       &kLines},
      {"data.loss_on", "completions", "of prompts and messages: `completions` (what the assistant says), or `all`",
       &kLines},
      {"data.bad_lines", "stop",
       "lines that can't be trained on: `stop` names the first (exit 4), `skip` leaves them out and counts them, `cut` "
       "does so too and cuts those that are too long",
       &kLines},
      {"data.sequence_length", "128", "tokens of a sample"},
      {"data.target_length", "0",
       "of a model with an encoder and a decoder: tokens of a completion, which the decoder is trained on; 0: "
       "`data.sequence_length`, which is the prompt's",
       &kLines},
      {"data.document_mask", "false",
       "tokens see their own document alone, positions begin anew in each, and nothing is trained to follow its last "
       "token; documents are files, and those of an index; `jsonl` is always so",
       &kPackedDocuments},
      {"data.batch_size", "32", "samples of a step, over all replicas"},
      {"data.shuffle", "true", "each pass through the data has an order of its own"},
      {"data.prefetch", "2", "batches that a thread prepares ahead; 0: none"},
      {"data.image_size", "the model's",
       "pixels of a side of what the model reads ([docs/data_labelled.md](data_labelled.md#images))", &kPictures},
      {"data.resize", "the processor's",
       "what is evaluated has so many pixels on its shorter side before its centre is cut out; 0: all of it is resized",
       &kPictures},
      {"data.interpolation", "the processor's", "`bilinear` or `bicubic`", &kPictures},
      {"data.mean", "the processor's", "of red, green and blue, from 0 to 1: subtracted", &kPictures},
      {"data.std", "the processor's", "of red, green and blue: divided by", &kPictures},
      {"data.crop", "random", "what is trained on: `random` (a drawn part), or `center` (as in an evaluation)",
       &kPictures},
      {"data.crop_scale", "[0.08, 1]", "the smallest and the largest share of its area that a drawn part has",
       &kDrawnCrops},
      {"data.crop_ratio", "[0.75, 1.3333]", "the smallest and the largest width of a drawn part, in heights",
       &kDrawnCrops},
      {"data.flip", "0.5", "the share of pictures that are mirrored in training", &kPictures},

      {"optimizer.name", "adamw", "`adamw`, `sgd`, `lion` or `muon`"},
      {"optimizer.lr", "3e-4", "the learning rate that `lr_schedule` begins with"},
      {"optimizer.betas", "[0.9, 0.999]", "rates of the running means", &kBetas},
      {"optimizer.eps", "1e-8", "what the root of the second mean is raised by", &kAdamW},
      {"optimizer.weight_decay", "0.01", "of every parameter that neither `no_decay` nor a group excepts"},
      {"optimizer.momentum", "0.9", "of the running sum of gradients; 0.95 where muon has none", &kMomentum},
      {"optimizer.clip_grad_norm", "", "the gradient is scaled down to this norm; without it nothing is clipped"},
      {"optimizer.no_decay", "[]", "patterns of the names of parameters without weight decay; `*` is any text",
       &kDecaying},
      {"optimizer.groups", "[]",
       "a list of `{match, lr, weight_decay}`: a parameter is of the first group that matches"},
      {"optimizer.groups[].match", "", "patterns of names, as of `no_decay`"},
      {"optimizer.groups[].lr", "`optimizer.lr`", "the group's learning rate"},
      {"optimizer.groups[].weight_decay", "`optimizer.weight_decay`", "the group's weight decay"},

      {"lr_schedule.name", "constant", "`constant`, `linear`, `cosine` or `wsd` (warm-up, stable, decay)"},
      {"lr_schedule.warmup_steps", "0", "steps over which the rate rises from 0"},
      {"lr_schedule.warmup_ratio", "0", "in place of `warmup_steps`: their share of `train.steps`, rounded up"},
      {"lr_schedule.decay_steps", "0", "the last steps, over which the rate falls to `min_lr`", &kWsd},
      {"lr_schedule.min_lr", "0", "the rate of the last step", &kFalling},

      {"precision", "float32",
       "`float32`, `float64`, `bfloat16` or `float16`: the last two with float32 masters and gradients"},
      {"loss_scale.initial", "65536", "the first factor of the loss", &kFloat16},
      {"loss_scale.growth_interval", "2000", "steps without overflow until the factor is doubled", &kFloat16},
      {"loss_scale.hysteresis", "2", "overflows in a row until the factor is halved", &kFloat16},

      {"evaluation.path", "", "held-out data of `data.format`; without it nothing is evaluated", &kWithData},
      {"evaluation.every", "0", "steps between evaluations; the last step has one in any case", &kEvaluating},
      {"evaluation.batches", "0", "at most so many of `data.batch_size`; 0: every sample once", &kEvaluating},
      {"evaluation.choices", "",
       "a file of questions with choices, which are scored by their likelihood "
       "([docs/evaluation.md](evaluation.md#multiple-choice-questions))",
       &kEvaluating},
      {"evaluation.prompts", "[]", "texts that each evaluation continues by the likeliest tokens", &kEvaluating},
      {"evaluation.prompt_tokens", "32", "the most tokens that a prompt is continued by", &kPrompting},

      {"train.steps", "", "steps of the whole run"},
      {"train.epochs", "",
       "in place of `steps`: passes through the data, rounded up to whole steps; a part of one too"},
      {"train.seed", "1", "of initial weights, dropout and the order of samples"},
      {"train.log_every", "1", "steps between lines of progress"},
      {"train.audit_every", "0",
       "steps between comparisons of replicas, which must agree to the bit (exit 8 names the first that does not); 0: "
       "never"},
      {"train.non_finite", "stop",
       "a step whose gradient norm is not finite: `stop` (exit 8 names the parameter and rank) or `skip`",
       &kNotFloat16},
      {"train.label_smoothing", "0", "the share of each label that is spread over the whole vocabulary"},
      {"train.max_minutes", "0",
       "the run ends with the step after which so many have passed, saved as at its last step; 0: it has no limit"},
      {"train.neftune_alpha", "0",
       "noise on the embeddings of tokens in training, uniform up to alpha / sqrt(tokens of a sample * their size): "
       "NEFTune, arXiv 2310.05914"},
      {"train.patience", "0",
       "the run ends when so many evaluations in a row had no lower held-out loss than one before them; 0: it goes on",
       &kEvaluating},
      {"train.offload", "none",
       "what waits in host memory while it is not needed: `none`, `optimizer` (its state, between steps), "
       "`activations` (from forward to backward) or `both`; on the CPU in a file of TMPDIR "
       "([docs/layouts.md](layouts.md#memory))"},
      {"train.device_graphs", "false",
       "a stage's forward and backward are recorded on the device (CUDA graphs) and replayed, so that the host need "
       "not put each kernel there ([docs/gpu.md](gpu.md#cuda-graphs))",
       &kDevices},
      {"train.freeze", "[]", "patterns of the names of parameters that are not trained; `*` is any text"},

      {"checkpoint.path", "",
       "the folder of the run's checkpoints; without it none are saved ([docs/checkpoints.md](checkpoints.md))"},
      {"checkpoint.every", "500", "steps between checkpoints; the last step has one in any case; 0: it alone",
       &kSaving},
      {"checkpoint.keep", "0", "the newest so many stay; 0: all", &kSaving},
      {"checkpoint.keep_best", "false",
       "what is evaluated is saved too, and the checkpoint of the lowest held-out loss stays beside those that `keep` "
       "leaves",
       &kKeepingBest},
      {"checkpoint.load", "",
       "a checkpoint of this model whose weights the run begins with, as at step 0: no optimizer state, no place in "
       "the "
       "data; a run that resumes does not read it"},
      {"checkpoint.async", "false", "training goes on while a checkpoint is written", &kSaving},
      {"checkpoint.resume", "none", "`none`, `auto` (the newest of `path`, if there is one) or a PATH"},
      {"checkpoint.allow_changes", "false",
       "resume though samples will be skipped or repeated: other data, another order, another sequence length",
       &kResuming},

      {"output", "",
       "a folder for metrics.jsonl, config.yaml as resolved, the report and traces "
       "([docs/monitoring.md](monitoring.md)), "
       "and "
       "`recorder/`"},

      {"profile.wait", "0",
       "steps that pass before each cycle of those watched in detail ([docs/monitoring.md](monitoring.md))"},
      {"profile.warmup", "0", "steps that are watched and thrown away"},
      {"profile.active", "1", "steps that are watched and kept"},
      {"profile.repeat", "1", "cycles; 0: to the end"},

      {"comm.backend", "auto",
       "`auto`, `local`, `mpi`, `nccl` ([NCCL](gpu.md)) or `ipc` ([one device for all "
       "ranks](gpu.md#ranks-that-share-a-device))"},
      {"comm.timeout_seconds", "60", "a wait for other ranks that takes longer ends the job (exit 7)"},
      {"comm.threads_per_rank", "auto",
       "threads of a rank's operators; `auto`: the rank's share of the cores that its process may use (cpusets, CPU "
       "quotas), unless `OMP_NUM_THREADS` is set"},
      {"comm.heartbeat_seconds", "1",
       "between a rank's signs of life ([docs/troubleshooting.md](troubleshooting.md)); 0: none are sent", &kProcesses},
      {"comm.lost_after_seconds", "15",
       "a rank without a sign of life for so long ends the job (exit 7); one that others wait for so long is named by "
       "a "
       "warning"},
      {"comm.interface", "",
       "the network interface or address by which ranks reach rank 0's control plane: loopback on one host; over hosts "
       "needed unless `gantry launch` starts the ranks",
       &kProcesses},
      {"comm.registered_buffers", "false",
       "gradients of ZeRO 0 and 1 lie in memory that NCCL gives and has registered, which saves it copies "
       "([docs/gpu.md](gpu.md#registered-buffers))",
       &kDevices},
      {"comm.sums_by_rank", "false",
       "over NCCL too sums go by rank, with the bits of the other backends, by more messages "
       "([docs/gpu.md](gpu.md#reductions-in-rank-order))",
       &kDevices},
      {"comm.recorder", "1024",
       "operations that a rank remembers for `gantry doctor DIR`; 0: none "
       "([docs/troubleshooting.md](troubleshooting.md))"},

      {"libraries", "[]", "shared libraries that register policies and model families"},
  };
}

// "data.sources[0].path" as the list of keys has it.
std::string without_places(const std::string& path) {
  std::string general;
  bool inside = false;
  for (const char c : path) {
    if (c == ']') inside = false;
    if (!inside) general += c;
    if (c == '[') inside = true;
  }
  return general;
}

class EffectCheck {
 public:
  EffectCheck(const Config& config, bool only_overridden, ConfigFaults& faults)
      : config_(config), only_overridden_(only_overridden), faults_(faults) {}

  void visit(const YAML::Node& node, const std::string& path) {
    if (node.IsSequence())
      for (std::size_t i = 0; i < node.size(); ++i) visit(node[i], fmt::format("{}[{}]", path, i));
    if (!node.IsMap()) return;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) continue;  // the reader has refused it
      const std::string below = path.empty() ? item.first.Scalar() : path + "." + item.first.Scalar();
      if (const ConfigKey* key = find_config_key(without_places(below))) check(*key, below, item.first.Mark());
      if (below != "model.config") visit(item.second, below);
    }
  }

 private:
  void check(const ConfigKey& key, const std::string& path, const YAML::Mark& mark) {
    if (key.has_effect(config_) || (only_overridden_ && !faults_.is_overridden(path))) return;
    faults_.add(path, mark, "is there " + key.context->otherwise(config_) + ", where it has no effect",
                key.context->needs, key.context->remedy);
  }

  const Config& config_;
  bool only_overridden_;
  ConfigFaults& faults_;
};

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> kKeys = make_keys();
  return kKeys;
}

const ConfigKey* find_config_key(std::string_view path) {
  const auto found =
      std::ranges::find(config_keys(), path, [](const ConfigKey& key) { return std::string_view(key.path); });
  return found == config_keys().end() ? nullptr : &*found;
}

void check_effects(const Config& config, const YAML::Node& document, bool only_overridden, ConfigFaults& faults) {
  EffectCheck(config, only_overridden, faults).visit(document, "");
}

}  // namespace gantry
