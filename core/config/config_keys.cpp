#include "gantry/core/config/config_keys.h"

#include <algorithm>
#include <fmt/format.h>

#include "gantry/core/config/schedule_names.h"

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
std::string with_objective(C c) { return "with objective " + c.train.objective.name; }
bool has_format(C c, std::initializer_list<const char*> formats) {
  return std::any_of(formats.begin(), formats.end(), [&](const char* one) { return c.data.format == one; });
}

const KeyContext kGenerated = {"a named schedule; a FILE.csv has its own chunks",
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
                                                                                       "chooses the layers"
                                                                                     : "without recompute");
                                 },
                                 "set schedule.recompute, or remove the key"};
const KeyContext kChoosing = {"schedule.recompute auto", [](C c) { return c.schedule.recompute == "auto"; },
                              [](C c) { return "with recompute " + c.schedule.recompute; },
                              "set schedule.recompute: auto, or remove the key"};
const KeyContext kVocabulary = {"data.format text, jsonl or squad, or data.objective mlm",
                                [](C c) {
                                  return has_format(c, {"text", "jsonl", "squad"}) || c.data.objective == "mlm";
                                },
                                with_format, "remove the key; gantry data build applies a tokenizer to text"};
const KeyContext kPackedDocuments = {"data.format text, tokens or megatron",
                                     [](C c) {
                                       return has_format(c, {"text", "tokens", "megatron"});
                                     },
                                     with_format};
const KeyContext kTexts = {"data.format text or jsonl",
                           [](C c) { return c.data.format == "text" || c.data.format == "jsonl"; }, with_format};
bool has_chats(C c) {
  return c.data.format == "jsonl" || std::ranges::any_of(c.evaluation.prompts, &EvaluationPrompt::is_chat);
}
const KeyContext kChats = {"data.format jsonl, or chats in evaluation.prompts", has_chats, with_format};
const KeyContext kLines = {"data.format jsonl", [](C c) { return c.data.format == "jsonl"; }, with_format};
const KeyContext kMaskedTokens = {"data.objective mlm", [](C c) { return c.data.objective == "mlm"; },
                                  [](C) { return std::string("without data.objective mlm"); }};
bool has_objective(C c, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return c.train.objective.name == one; });
}
const KeyContext kDpo = {"train.objective.name dpo", [](C c) { return has_objective(c, {"dpo"}); }, with_objective};
const KeyContext kTypedLoss = {"train.objective.name dpo or distill",
                               [](C c) {
                                 return has_objective(c, {"dpo", "distill"});
                               },
                               with_objective};
const KeyContext kScaled = {
    "train.objective.name other than reward; distill: loss_type jsd",
    [](C c) {
      return !has_objective(c, {"reward", "distill"}) || c.train.objective.loss_type == "jsd";
    },
    [](C c) {
      return with_objective(c) + (has_objective(c, {"distill"}) ? " and loss_type " + c.train.objective.loss_type : "");
    }};
const KeyContext kKto = {"train.objective.name kto", [](C c) { return has_objective(c, {"kto"}); }, with_objective};
const KeyContext kReward = {"train.objective.name reward", [](C c) { return has_objective(c, {"reward"}); },
                            with_objective};
const KeyContext kDistill = {"train.objective.name distill", [](C c) { return has_objective(c, {"distill"}); },
                             with_objective};
const KeyContext kSimpo = {"train.objective.name simpo", [](C c) { return has_objective(c, {"simpo"}); },
                           with_objective};
const KeyContext kReferenced = {"train.objective.name dpo, ipo or kto",
                                [](C c) { return c.train.objective.has_reference(); }, with_objective};
const KeyContext kImages = {"data.format images", [](C c) { return c.data.format == "images"; }, with_format};
const KeyContext kRandomCrops = {
    "data.format images and data.crop random",
    [](C c) { return c.data.format == "images" && c.data.pictures.crop == "random"; },
    [](C c) { return c.data.format == "images" ? "with crop " + c.data.pictures.crop : with_format(c); }};
const KeyContext kBetas = {"optimizer.name adamw, adamw8bit, lion or muon",
                           [](C c) { return c.optimizer.name != "sgd" && c.optimizer.name != "adafactor"; },
                           with_optimizer,
                           "remove the key; adafactor has no such averages, and sgd has optimizer.momentum"};
// Muon updates parameters that are not matrices of a layer like AdamW.
const KeyContext kAdamW = {"optimizer.name adamw, adamw8bit or muon",
                           [](C c) { return c.optimizer.name.starts_with("adamw") || c.optimizer.name == "muon"; },
                           with_optimizer};
const KeyContext kMomentum = {"optimizer.name sgd or muon",
                              [](C c) { return c.optimizer.name == "sgd" || c.optimizer.name == "muon"; },
                              with_optimizer, "remove the key; adamw, adamw8bit and lion have optimizer.betas"};
const KeyContext kDecaying = {"optimizer.weight_decay above 0", [](C c) { return c.optimizer.weight_decay > 0; },
                              [](C) { return std::string("with weight_decay 0"); }};
const KeyContext kDecayingRate = {
    "a schedule that decreases to a lowest rate: linear, cosine, cosine_with_restarts, polynomial, or wsd with "
    "decay_steps",
    [](C c) {
      const std::string& name = c.lr_schedule.name;
      return name == "wsd" ? c.lr_schedule.decay_steps > 0
                           : name != "constant" && name != "inverse_sqrt" && name != "piecewise";
    },
    with_rates};
const KeyContext kPolynomial = {"lr_schedule.name polynomial", [](C c) { return c.lr_schedule.name == "polynomial"; },
                                with_rates};
const KeyContext kRestarts = {"lr_schedule.name cosine_with_restarts",
                              [](C c) { return c.lr_schedule.name == "cosine_with_restarts"; }, with_rates};
const KeyContext kPiecewise = {"lr_schedule.name piecewise", [](C c) { return c.lr_schedule.name == "piecewise"; },
                               with_rates};
const KeyContext kWsd = {"lr_schedule.name wsd", [](C c) { return c.lr_schedule.name == "wsd"; }, with_rates};
const KeyContext kFloat16 = {"precision float16", is_float16, with_precision};
const KeyContext kNotFloat16 = {"a precision other than float16, which skips such steps and lowers the loss scale",
                                [](C c) { return !is_float16(c); }, with_precision};
const KeyContext kWithData = {"data.format, which is also the format of the held-out data",
                              [](C c) { return !c.data.format.empty(); }, [](C) { return std::string("without data"); },
                              "add a data section, or remove the key"};
const KeyContext kEvaluating = {"evaluation.path", [](C c) { return !c.evaluation.path.empty(); },
                                [](C) { return std::string("without evaluation.path"); },
                                "set evaluation.path, or remove the key"};
const KeyContext kPrompting = {"evaluation.prompts", [](C c) { return !c.evaluation.prompts.empty(); },
                               [](C) { return std::string("without evaluation.prompts"); }};
const KeyContext kSaving = {"checkpoint.path", saves, [](C) { return std::string("without checkpoint.path"); },
                            "set checkpoint.path, or remove the key"};
const KeyContext kKeepingBest = {
    "checkpoint.path and evaluation.path", [](C c) { return saves(c) && !c.evaluation.path.empty(); },
    [](C c) { return std::string(saves(c) ? "without evaluation.path" : "without checkpoint.path"); },
    "set both paths, or remove the key"};
const KeyContext kReported = {"output", [](C c) { return !c.output.empty(); },
                              [](C) { return std::string("without output"); }};
const KeyContext kResuming = {"checkpoint.resume auto or a PATH", [](C c) { return c.checkpoint.resume != "none"; },
                              [](C) { return std::string("with checkpoint.resume none"); },
                              "set checkpoint.resume, or remove the key"};
const KeyContext kContext = {"parallel.context above 1", [](C c) { return c.parallel.context > 1; },
                             [](C) { return std::string("with parallel.context 1"); },
                             "set parallel.context, or remove the key"};
const KeyContext kTensorRanks = {"parallel.tensor above 1", [](C c) { return c.parallel.tensor > 1; },
                                 [](C) { return std::string("with parallel.tensor 1"); },
                                 "set parallel.tensor, or remove the key"};
const KeyContext kUlyssesRing = {"parallel.context_method ulysses_ring",
                                 [](C c) { return c.parallel.context_method == "ulysses_ring"; },
                                 [](C c) { return "with context_method " + c.parallel.context_method; }};
const KeyContext kFullyShards = {"parallel.zero 3", [](C c) { return c.parallel.zero == 3; },
                                 [](C c) { return "with parallel.zero " + std::to_string(c.parallel.zero); },
                                 "set parallel.zero: 3, or remove the key"};
const KeyContext kExpertRanks = {"parallel.expert above 1", [](C c) { return c.parallel.expert > 1; },
                                 [](C) { return std::string("with parallel.expert 1"); },
                                 "set parallel.expert, or remove the key"};
const KeyContext kBalanced = {"an experts.balance other than none", [](C c) { return c.experts.balance != "none"; },
                              [](C) { return std::string("with experts.balance none"); },
                              "set experts.balance to sequence, microbatch or transformers"};
const KeyContext kDevices = {"comm.backend auto or nccl, on GPUs",
                             [](C c) { return c.comm.backend == "auto" || c.comm.backend == "nccl"; },
                             [](C c) { return "with comm.backend " + c.comm.backend; }};
const KeyContext kProcesses = {"a comm.backend other than local", may_have_processes,
                               [](C) { return std::string("with backend local"); }};
const KeyContext kWithPath = {"model.path", [](C c) { return !c.model.path.empty(); },
                              [](C) { return std::string("without model.path"); }, "set model.path, or remove the key"};
std::vector<ConfigKey> make_keys() {
  return {
      {"model.policy", "from `path`", "model family: `gpt2`, `llama`, `bert`, or another registered name"},
      {"model.path", "",
       "directory of a Hugging Face model: `config.json` and safetensors weights ([docs/models.md](models.md))"},
      {"model.config", "",
       "mapping of keys of the model's `config.json`; with `path`, they override the values of the file"},
      {"model.unknown_keys", "warn",
       "treatment of unknown keys in the `config.json` at `path`, which neither Gantry nor transformers defines for "
       "this family. `warn`: they have no effect, and one warning lists them. `refuse`: the first unknown key is an "
       "error",
       &kWithPath},
      {"model.quantize", "",
       "`nf4`, `fp4` or `int8`: linear layers that are not trained are in memory in 4 or 8 bits, all of them except "
       "output layers and heads for labels. Their values are computed again at each use. Training needs `lora` "
       "([docs/fine_tuning.md](fine_tuning.md#a-base-model-in-4-or-8-bits))",
       &kWithPath},

      {"lora.r", "8",
       "rank of the adapters, which are trained instead of the model ([docs/fine_tuning.md](fine_tuning.md))"},
      {"lora.alpha", "8", "scale of the adapters: their output is multiplied by alpha / r"},
      {"lora.dropout", "0",
       "dropout probability on the adapter's input, in training only; must be 0 for adapters of routers and experts"},
      {"lora.target_modules", "",
       "layers that get an adapter: a list of module names or paths as in the Hugging Face model (`q_proj`), or "
       "`all-linear` for every linear layer except the output layer. Embeddings, routers and expert weights "
       "(`experts.down_proj`) can be listed by name. Required without `lora.path`"},
      {"lora.modules_to_save", "[]",
       "modules that are trained in full in addition to the adapters: a list of module names or paths as in "
       "`target_modules`. The head for labels of a model is added, unless `target_modules` lists it"},
      {"lora.trainable_token_indices", "[]",
       "token ids whose rows of the embedding are trained in addition to the adapters, and with them those of a tied "
       "output layer. For decoders; needs base weights from `model.path`"},
      {"lora.rslora", "false", "true: the scale is alpha / sqrt(r) instead of alpha / r"},
      {"lora.use_dora", "false",
       "true: DoRA. The norm of each row of an adapted weight is a trained value of its own, and the adapter changes "
       "the direction of the row. For linear layers; needs base weights from `model.path`"},
      {"lora.init_lora_weights", "default",
       "initial values of the adapters. `default`: PEFT's, `A` Kaiming-uniform and `B` zero. `gaussian`: `A` normal "
       "with the standard deviation 1 / r. `pissa`: the largest singular values and vectors of the weight, which are "
       "subtracted from the base. `pissa_niter_N`: an approximation of these with N power iterations. `loftq`: those "
       "of the errors of `model.quantize`. PiSSA and LoftQ are for linear layers, and need base weights from "
       "`model.path`"},
      {"lora.loraplus_lr_ratio", "1",
       "LoRA+ (arXiv 2402.12354): learning rate of the factors B and of DoRA's norms, as a multiple of `optimizer.lr`, "
       "which that of A is. A rate of `optimizer.groups` is not multiplied"},
      {"lora.rank_pattern", "{}",
       "ranks of individual layers: a mapping from a regular expression to a rank. An expression matches the full path "
       "of a layer, or a suffix of it that starts after a dot"},
      {"lora.alpha_pattern", "{}", "values of alpha for individual layers: a mapping as in `rank_pattern`"},
      {"lora.path", "",
       "directory of a PEFT adapter to start from. It sets every key of `lora` except `dropout`, `init_lora_weights` "
       "and `loraplus_lr_ratio`; a key that is set to a different value is an error"},

      {"parallel.tensor", "1", "number of ranks over which each layer is sharded (size of the tp axis)"},
      {"parallel.pipeline", "1",
       "number of pipeline ranks, over which the layers are partitioned (size of the pp axis)"},
      {"parallel.data", "auto",
       "number of data-parallel replicas (size of the dp axis); auto: ranks / (tensor * pipeline * context), or 1 if "
       "Gantry starts the ranks itself"},
      {"parallel.context", "1",
       "number of ranks over which each sequence is sharded (size of the cp axis; "
       "[docs/context_parallelism.md](context_parallelism.md))"},
      {"parallel.context_method", "auto",
       "algorithm of attention over the tokens of all context ranks: `all_gather`, `ring`, `ulysses` or "
       "`ulysses_ring`; auto: chosen by heads, tokens and hosts "
       "([docs/context_parallelism.md](context_parallelism.md#methods))",
       &kContext},
      {"parallel.ulysses", "auto",
       "size of the groups that exchange heads in `ulysses_ring`; must divide `parallel.context`. Ranks with the same "
       "heads form a ring. auto: the largest divisor below `parallel.context` that also divides the query and KV heads "
       "of a tp rank. If only 1 does, the largest divisor up to the number of these query heads",
       &kUlyssesRing},
      {"parallel.expert", "1",
       "number of ranks (of data * context * tensor) over which the experts of a layer are distributed (size of the ep "
       "axis; [docs/experts.md](experts.md))"},
      {"parallel.order", "[pp, dp, tp]",
       "axes of the mesh from the outermost to the innermost: a permutation of pp, dp and tp, and optionally cp. If cp "
       "is not listed, it is just outside tp"},
      {"parallel.sequence_parallel", "false",
       "true: activations between tensor-parallel layers are sharded along the sequence"},
      {"parallel.tensor_overlap", "1",
       "number of pieces (of rows) into which tensor-parallel linear layers split their all-gather, all-reduce and "
       "reduce-scatter messages. On GPUs one piece is sent while the next one is computed; 1: no overlap "
       "([docs/layouts.md](layouts.md#overlap-of-tensor-parallel-communication))",
       &kTensorRanks},
      {"parallel.zero", "0",
       "ZeRO stage, over the ranks of dp and cp: 1 shards the optimizer state, 2 also the gradients, 3 also the "
       "parameters; 0: everything is replicated ([docs/data_parallelism.md](data_parallelism.md))"},
      {"parallel.shard", "auto",
       "number of ranks (of data * context, context ranks first) over which ZeRO 3 shards each parameter; auto: all of "
       "them. A smaller number replicates the shards. Expert weights are sharded over shard * tensor / expert ranks",
       &kFullyShards},
      {"parallel.gather", "auto",
       "period in which ZeRO 3 keeps parameters unsharded. `step`: from the first to the last use of a stage in a "
       "step. `window`: for the stage in use and the next one. `microbatch`: layer by layer, around each use. auto: "
       "`microbatch` without a pipeline, else `window`",
       &kFullyShards},
      {"parallel.vocabulary", "stages",
       "placement of embedding and output layer. `stages`: on the first and on the last stage. `pipeline`: sharded "
       "over all ranks of the pipeline ([docs/layouts.md](layouts.md#vocabulary-over-the-pipeline)). auto: the one "
       "with the shorter simulated step"},
      {"parallel.bucket_mb", "25",
       "maximum size of a gradient bucket in MiB; each bucket is reduced over the data-parallel ranks in one "
       "collective. A larger parameter gets a bucket of its own"},

      {"experts.dispatch", "all_to_all",
       "collective that sends tokens to the experts of other ranks: `all_to_all`, or `all_gather`, which is simpler "
       "and slower",
       &kExpertRanks},
      {"experts.balance", "none",
       "auxiliary loss that balances the experts: `none`, `sequence`, `microbatch` or `transformers` "
       "([docs/experts.md](experts.md#balance-the-experts)). Requires `aux_loss` above 0"},
      {"experts.aux_loss", "0", "coefficient of the loss of `experts.balance`", &kBalanced},
      {"experts.z_loss", "0",
       "coefficient of the router z-loss, the mean squared logsumexp of the router logits; 0: no such loss"},
      {"experts.bias_update", "0",
       "step size of DeepSeek-V3's expert bias update, which balances the experts after each optimizer step; 0: the "
       "biases stay constant. Requires routers that have this bias"},

      {"schedule.name", "1f1b",
       "pipeline schedule: a name from [docs/schedules.md](schedules.md), or a FILE.csv with compute actions"},
      {"schedule.chunks", "by schedule",
       "number of chunks (stages) per rank. Default: 2 for `zb_v`, `v_half`, `v_min`, `v_1f1b` and `dualpipe_v`, else "
       "1",
       &kGenerated},
      {"schedule.group_size", "`parallel.pipeline`",
       "number of consecutive microbatches that a rank computes for one chunk before it switches to the next chunk",
       &kInterleaved},
      {"schedule.vocabulary_algorithm", "2",
       "algorithm of arXiv 2411.05288, 1 or 2. In 2, the backward pass does not wait for the weight gradients of the "
       "output layer, which may save the activations of one microbatch "
       "([docs/layouts.md](layouts.md#vocabulary-over-the-pipeline))",
       &kSharedVocabulary},
      {"schedule.recompute", "none",
       "activations to recompute in the backward pass ([docs/layouts.md](layouts.md#recompute-within-a-memory-limit)). "
       "`none`. `selective`: those of the attention core. `parts`: those of attention and MLP, each separately. "
       "`full`: those of full layers. `auto`: one of these, for as many layers of each stage as `memory_limit` "
       "requires"},
      {"schedule.recompute_layers", "all",
       "number of layers to recompute, counted from the first layer of each stage: one number, or a list with one "
       "number per stage",
       &kRecomputing},
      {"schedule.memory_limit", "", "memory limit per rank for `recompute: auto`, with a unit: `20 GiB`, `80 GB`",
       &kChoosing},
      {"schedule.microbatches", "2 * `parallel.pipeline` * `schedule.chunks`; 1 without a pipeline",
       "number of microbatches per step, at most the number of samples per replica"},
      {"schedule.microbatch_size", "", "number of samples per microbatch, as an alternative to `microbatches`"},
      {"schedule.layers", "default",
       "distribution of layers over stages ([docs/layouts.md](layouts.md#layers-per-stage)). `default`: equal numbers. "
       "`balanced`: by amount of computation. `{balanced: DIRECTORY}`: by the times that the run with this `output` "
       "measured. A list with one number per stage. A layout string such as "
       "`\"Et*3\\|(tt\\|)*2t\\|L\"`"},

      {"data.format", "",
       "format of the data. `text`. `tokens`: little-endian uint16. `megatron`: .bin and .idx. `jsonl`: JSON objects, "
       "one per line. `squad`. `tensors`: a safetensors file of batch entries. `images`: a directory of images per "
       "class. See [docs/data.md](data.md) and [docs/data_labelled.md](data_labelled.md)"},
      {"data.path", "",
       "path of the data: a file. For `text`, `tokens` and `jsonl` also a directory or a glob pattern. For `megatron` "
       "the common prefix of both files. For `images` the parent directory of the class directories"},
      {"data.sources", "", "list of `{path, weight}`, as an alternative to `path`; all have the same format"},
      {"data.sources[].path", "", "path of the source, as in `data.path`"},
      {"data.sources[].weight", "1",
       "relative share of the samples; the weights of all sources are normalized to sum to 1"},
      {"data.tokenizer", "from `model.path`",
       "directory or file with the tokenizer. For `text` and `jsonl` also `bytes`: tokens 0 to 255 are the bytes; this "
       "is the default for models without a tokenizer whose vocabulary is at most 256",
       &kVocabulary},
      {"data.chat_template", "from the tokenizer",
       "name of the template that renders `messages`: `chatml`, `gemma`, `gemma3`, `llama2`, `llama3`, `mistral`, "
       "`phi3` or `zephyr` ([docs/fine_tuning.md](fine_tuning.md#chats))",
       &kChats},
      {"data.template_kwargs", "{}",
       "variables that the chat template reads, as a mapping such as `{enable_thinking: false}`; the "
       "`chat_template_kwargs` of a line replace them",
       &kChats},
      {"data.objective", "",
       "origin of the labels. `causal`: the next token, for decoders and encoder-decoders. `mlm`: the tokens that are "
       "masked in each row of text, for encoders such as BERT with a masked language model head. `labels`: those of "
       "the "
       "data. Without the key, the model's head and `data.format` decide, but `mlm` must be set"},
      {"data.mlm_probability", "0.15",
       "share of the tokens that are chosen for the loss. 80 % of them become the mask token, 10 % a random token, and "
       "10 % stay. Special tokens are never chosen",
       &kMaskedTokens},
      {"data.bos", "auto",
       "beginning-of-sequence token before each line or file of text. `auto`: as the tokenizer puts it before a text; "
       "for messages, as the chat template writes it. `always` and `never`: also for messages. It is never doubled",
       &kTexts},
      {"data.eos", "auto",
       "end-of-sequence token after each line or file of text. `auto`: the tokens that the tokenizer puts after a "
       "text, "
       "otherwise the end-of-sequence token; for messages, as the chat template writes it. `always` and `never`: also "
       "for messages. It is never doubled",
       &kTexts},
      {"data.loss_on", "completions",
       "tokens with a loss in lines with prompts or messages. `completions`: the completion, or the assistant's "
       "messages. `last`: the completion, or the assistant's last message. `all`: every token",
       &kLines},
      {"data.bad_lines", "stop",
       "handling of lines that cannot be used: `stop` ends the run and names the first one (exit code 4), `skip` omits "
       "and counts them, `cut` also truncates lines that are too long",
       &kLines},
      {"data.sequence_length", "128", "number of tokens per sample"},
      {"data.target_length", "0",
       "maximum number of tokens of a completion, for models with encoder and decoder; 0: `data.sequence_length`, "
       "which is the maximum of the prompt",
       &kLines},
      {"data.document_mask", "false",
       "true: tokens attend only to their own document, positions restart in each document, and no loss is computed on "
       "the token after a document's last one. A document is a file, or an entry of an index file. `jsonl` is always "
       "masked",
       &kPackedDocuments},
      {"data.batch_size", "32", "number of samples per step, over all replicas"},
      {"data.shuffle", "true",
       "true: each pass through the data has its own random order; false: the order of the data"},
      {"data.prefetch", "2", "number of batches that a thread prepares ahead; 0: none"},
      {"data.workers", "auto",
       "number of threads that encode text when the data are opened (`auto`: the cores that the process may use), and "
       "that decode the images of a batch (`auto`: the threads of the rank, `comm.threads_per_rank`). The samples and "
       "their order do not depend on it"},
      {"data.cache", "auto",
       "directory of encoded text. Later runs and other processes find there the tokens of equal files, tokenizers and "
       "keys; files below 1 MiB are encoded each time. `auto`: `gantry/data` below `$XDG_CACHE_HOME` or `~/.cache`. "
       "`never`: the tokens are in memory",
       &kTexts},
      {"data.image_size", "from the model",
       "side length in pixels of the model's input ([docs/data_labelled.md](data_labelled.md#images))", &kImages},
      {"data.resize", "from the processor",
       "images in evaluation: length in pixels to which the shorter side is resized before the centre crop; 0: the "
       "full image is resized to the model's size",
       &kImages},
      {"data.interpolation", "from the processor", "interpolation of a resize: `bilinear` or `bicubic`", &kImages},
      {"data.mean", "from the processor",
       "mean of red, green and blue that is subtracted from the pixels, which are from 0 to 1", &kImages},
      {"data.std", "from the processor", "standard deviation of red, green and blue by which the pixels are divided",
       &kImages},
      {"data.crop", "random",
       "images in training: `random` for a random crop, `center` for the transformation of the evaluation", &kImages},
      {"data.crop_scale", "[0.08, 1]", "bounds of the random crop's share of the image area", &kRandomCrops},
      {"data.crop_ratio", "[0.75, 1.3333]", "bounds of the random crop's width divided by its height", &kRandomCrops},
      {"data.flip", "0.5", "probability of mirroring an image in training", &kImages},

      {"optimizer.name", "adamw",
       "optimizer: `adamw`, `adamw8bit`, `adafactor`, `sgd`, `lion` or `muon` "
       "([docs/data_parallelism.md](data_parallelism.md#optimizers))"},
      {"optimizer.lr", "3e-4", "base learning rate, which `lr_schedule` scales"},
      {"optimizer.betas", "[0.9, 0.999]", "decay rates beta1 and beta2 of the optimizer's running averages", &kBetas},
      {"optimizer.eps", "1e-8", "constant in the denominator of Adam's update, for numerical stability", &kAdamW},
      {"optimizer.weight_decay", "0.01",
       "weight decay of all parameters, except those that match `no_decay` or an entry of `groups` with a value of its "
       "own; if both match, the group's value is used"},
      {"optimizer.momentum", "0.9", "momentum of SGD or Muon; the default for Muon is 0.95", &kMomentum},
      {"optimizer.clip_grad_norm", "",
       "maximum global norm of the gradients, which are scaled down to it; without it there is no clipping"},
      {"optimizer.no_decay", "[]", "patterns of the names of parameters without weight decay; `*` matches any text",
       &kDecaying},
      {"optimizer.groups", "[]",
       "list of `{match, lr, weight_decay}`: values for groups of parameters. A parameter belongs to the first entry "
       "that matches its name"},
      {"optimizer.groups[].match", "", "patterns of names, as in `no_decay`"},
      {"optimizer.groups[].lr", "`optimizer.lr`", "base learning rate of the group"},
      {"optimizer.groups[].weight_decay", "`optimizer.weight_decay`",
       "weight decay of the group; takes precedence over `no_decay`"},

      {"lr_schedule.name", "constant",
       "learning-rate schedule: `constant`, `linear`, `cosine`, `cosine_with_restarts`, `wsd` (warm-up, stable, "
       "decay), "
       "`polynomial`, `inverse_sqrt` or `piecewise`"},
      {"lr_schedule.warmup_steps", "0", "number of steps over which the learning rate increases linearly from 0"},
      {"lr_schedule.warmup_ratio", "0",
       "warm-up as a share of `train.steps`, rounded up to full steps, as an alternative to `warmup_steps`"},
      {"lr_schedule.decay_steps", "0",
       "number of steps at the end of the run over which the learning rate decreases to `min_lr`", &kWsd},
      {"lr_schedule.min_lr", "0", "learning rate at the end of the decay", &kDecayingRate},
      {"lr_schedule.min_lr_ratio", "0",
       "learning rate at the end of the decay, as a share of the peak; an alternative to "
       "`min_lr`",
       &kDecayingRate},
      {"lr_schedule.power", "1", "exponent of the polynomial decay", &kPolynomial},
      {"lr_schedule.cycles", "1", "number of cosine cycles, each of which begins at the peak", &kRestarts},
      {"lr_schedule.milestones", "[]",
       "ascending numbers of steps; after each of them the learning rate is the peak times the entry of `factors`",
       &kPiecewise},
      {"lr_schedule.factors", "[]", "factors of the peak, one for each entry of `milestones`", &kPiecewise},

      {"precision", "float32",
       "type of the model's parameters and activations: `float32`, `float64`, `bfloat16` or `float16`. The last two "
       "have master weights and gradients in float32. `fp32`, `fp64`, `bf16` and `fp16` mean the same"},
      {"loss_scale.initial", "65536", "initial factor by which the loss is multiplied", &kFloat16},
      {"loss_scale.growth_interval", "2000",
       "number of consecutive steps without overflow after which the factor is doubled", &kFloat16},
      {"loss_scale.hysteresis", "2", "number of consecutive overflows after which the factor is halved", &kFloat16},

      {"evaluation.path", "",
       "path of the held-out data, which have the format `data.format`; without it there is no evaluation", &kWithData},
      {"evaluation.every", "0",
       "number of steps between evaluations. The last step is always evaluated; 0: only the last step", &kEvaluating},
      {"evaluation.batches", "0",
       "maximum number of batches per evaluation, of `data.batch_size` samples each; 0: the full evaluation set",
       &kEvaluating},
      {"evaluation.choices", "",
       "JSON Lines file of multiple-choice questions, which are scored by the likelihood of each choice "
       "([docs/evaluation.md](evaluation.md#multiple-choice-questions))",
       &kEvaluating},
      {"evaluation.prompts", "[]",
       "list of prompts that each evaluation continues with the most likely tokens (greedy decoding). A prompt is a "
       "text, or a list of messages (`{role, content}`) that are answered by the chat template",
       &kEvaluating},
      {"evaluation.prompt_tokens", "32", "maximum number of generated tokens per prompt", &kPrompting},
      {"evaluation.only", "false",
       "true: no training. The run evaluates once the weights of `model.path`, or of the checkpoint of "
       "`checkpoint.load` or `checkpoint.resume`, and saves no checkpoint",
       &kEvaluating},

      {"train.steps", "", "number of steps of the full run, including those before a resume"},
      {"train.epochs", "",
       "number of passes through the data, which may be a fraction, rounded up to full steps; an alternative to "
       "`steps`"},
      {"train.seed", "1", "random seed of initial weights, dropout and the order of samples"},
      {"train.log_every", "1", "number of steps between lines of progress"},
      {"train.log_files", "[tensorboard]",
       "list of the files that the run writes to `output` in addition to metrics.jsonl and the report. `tensorboard`: "
       "scalars for TensorBoard. `events`: events of each rank as JSON lines "
       "([docs/monitoring.md](monitoring.md#events)). `mlflow`: a run for MLflow "
       "([docs/monitoring.md](monitoring.md#mlflow)). `wandb`: an offline run for Weights & Biases "
       "([docs/monitoring.md](monitoring.md#weights-and-biases))",
       &kReported},
      {"train.otlp", "",
       "address of a collector of OpenTelemetry, `http://HOST[:PORT][/PATH]`, to which each rank sends spans of the "
       "run, "
       "its steps, actions, messages and saves ([docs/monitoring.md](monitoring.md#opentelemetry)); empty: no spans"},
      {"train.audit_every", "0",
       "number of steps between checks that all replicas are bitwise identical (exit code 8 and the name of the first "
       "difference if they are not); 0: no checks"},
      {"train.non_finite", "stop",
       "action if the gradient norm of a step is not finite: `stop` (exit code 8 with the parameter and rank), or "
       "`skip` the step",
       &kNotFloat16},
      {"train.label_smoothing", "0", "share of each label that is spread over the full vocabulary"},
      {"train.objective", "",
       "loss from preferences or from a teacher, in place of the loss of the model's head "
       "([docs/preferences.md](preferences.md)); for preferences `data.format` must be `jsonl`"},
      {"train.objective.name", "",
       "`dpo`: direct preference optimization (arXiv 2305.18290). `ipo`: arXiv 2310.12036. `simpo`: arXiv 2405.14734. "
       "`orpo`: arXiv 2403.07691. `kto`: arXiv 2402.01306. `reward`: a reward model, with a head for one label. "
       "`distill`: distillation from a teacher"},
      {"train.objective.beta", "0.1; 0.5 for distill",
       "factor of the log-probabilities in the rewards; orpo: weight of the odds; distill: weight of the teacher in "
       "the mixture",
       &kScaled},
      {"train.objective.label_smoothing", "0",
       "probability that a preference is wrong, below 0.5 (conservative DPO), with loss_type sigmoid", &kDpo},
      {"train.objective.loss_type", "sigmoid; forward for distill",
       "dpo: `sigmoid` or `hinge`. distill: divergence of the student from the teacher, `forward` (Kullback-Leibler, "
       "of the teacher's distribution), `reverse` or `jsd` (generalized Jensen-Shannon, arXiv 2306.13649)",
       &kTypedLoss},
      {"train.objective.gamma", "0.5", "target margin between the rewards of the two completions", &kSimpo},
      {"train.objective.desirable_weight", "1", "weight of desirable completions", &kKto},
      {"train.objective.undesirable_weight", "1", "weight of undesirable completions", &kKto},
      {"train.objective.center_rewards_coefficient", "0",
       "coefficient of the squared sum of the two scores, which centers them at 0 (arXiv 2312.09244)", &kReward},
      {"train.objective.teacher", "", "directory of the teacher, a decoder with the same vocabulary", &kDistill},
      {"train.objective.temperature", "1", "divisor of the logits of student and teacher", &kDistill},
      {"train.objective.alpha", "0", "share of the cross entropy of the labels in the loss", &kDistill},
      {"train.objective.reference", "",
       "directory with the weights of the reference model, in the form of `model.path`; empty: the weights before the "
       "first step, without adapters",
       &kReferenced},
      {"train.max_minutes", "0",
       "time limit in minutes: the run ends after the first step that exceeds it, and saves a checkpoint as after its "
       "last step; 0: no limit"},
      {"train.ema", "0",
       "decay of a moving average of the trained parameters, for example 0.999; 0: no average. Checkpoints have the "
       "average, and `gantry checkpoint export --ema` writes it as a model "
       "([docs/fine_tuning.md](fine_tuning.md#averaged-weights))"},
      {"train.neftune_alpha", "0",
       "magnitude of NEFTune's noise (arXiv 2310.05914) on the token embeddings in training: uniform, at most alpha / "
       "sqrt(tokens per sample * embedding size); 0: no noise"},
      {"train.patience", "0",
       "early stopping: number of consecutive evaluations without a new lowest loss after which the run ends; 0: no "
       "early stopping",
       &kEvaluating},
      {"train.offload", "none",
       "data to keep in host memory while they are not needed: `none`, `optimizer` (optimizer state), `activations` "
       "(from forward to backward) or `both`. On the CPU, a file in TMPDIR is used instead "
       "([docs/layouts.md](layouts.md#offload-to-host-memory))"},
      {"train.device_graphs", "false",
       "true: forward and backward of each stage are captured as CUDA graphs and replayed, so that the host does not "
       "launch each kernel ([docs/gpu.md](gpu.md#cuda-graphs))",
       &kDevices},
      {"train.freeze", "[]", "patterns of the names of parameters that are not trained; `*` matches any text"},

      {"checkpoint.path", "",
       "directory of the run's checkpoints; without it none are saved ([docs/checkpoints.md](checkpoints.md))"},
      {"checkpoint.every", "500",
       "number of steps between checkpoints. The last step is always saved; 0: only the last step", &kSaving},
      {"checkpoint.keep", "0", "number of checkpoints to keep; older ones are deleted. 0: all", &kSaving},
      {"checkpoint.keep_best", "false",
       "true: evaluated steps are saved too, and the checkpoint with the lowest evaluation loss is kept in addition to "
       "those of `keep`",
       &kKeepingBest},
      {"checkpoint.load", "",
       "checkpoint of the same model whose weights a new run starts from, without optimizer state and data position. A "
       "run that resumes does not read it"},
      {"checkpoint.async", "false", "true: training continues while a checkpoint is written", &kSaving},
      {"checkpoint.resume", "none",
       "checkpoint to resume from: `none`, `auto` (the newest one in `path`, or a new run if there is none), or the "
       "path of a checkpoint"},
      {"checkpoint.allow_changes", "false",
       "true: the run resumes although samples will be skipped or repeated, because the data, their order or the "
       "sequence length changed",
       &kResuming},

      {"output", "",
       "directory for metrics.jsonl, the resolved config.yaml, the report, traces and `recorder/` "
       "([docs/monitoring.md](monitoring.md))"},

      {"profile.wait", "0",
       "number of steps before each cycle that are not profiled ([docs/monitoring.md](monitoring.md#profiles))"},
      {"profile.warmup", "0", "number of steps per cycle that are profiled, but not kept"},
      {"profile.active", "1", "number of steps per cycle that are profiled and kept"},
      {"profile.repeat", "1", "number of cycles; 0: until the end of the run"},

      {"comm.backend", "auto",
       "communication backend ([docs/gpu.md](gpu.md#choose-the-backend)). `local`: threads of one process, on the CPU. "
       "`mpi`: MPI processes, on the CPU. `tcp`: processes without MPI, on the CPU. `nccl`: one GPU per rank. `ipc`: "
       "MPI processes of one host that share a GPU ([docs/gpu.md](gpu.md#ranks-that-share-a-device)). auto: `nccl` "
       "with CUDA devices, else `mpi` under mpirun, `tcp` under other launchers, else `local`"},
      {"comm.timeout_seconds", "60",
       "maximum time in seconds that a rank waits for other ranks; a longer wait ends the job (exit code 7)"},
      {"comm.threads_per_rank", "auto",
       "number of threads for the operators of a rank; auto: the rank's share of the cores that its process may use "
       "(cpusets, CPU quotas), unless `OMP_NUM_THREADS` is set"},
      {"comm.heartbeat_seconds", "1",
       "time in seconds between the heartbeats of a rank "
       "([docs/troubleshooting.md](troubleshooting.md#exit-code-7-a-rank-was-lost)); 0: no heartbeats",
       &kProcesses},
      {"comm.lost_after_seconds", "15",
       "time in seconds without a heartbeat after which a rank counts as lost and the job ends (exit code 7), at least "
       "2 * `comm.heartbeat_seconds`. A warning names a rank for which others have waited this long"},
      {"comm.interface", "",
       "network interface or address at which rank 0 listens for heartbeats. Default: loopback on one host. Required "
       "on several hosts, unless `gantry launch` starts the ranks",
       &kProcesses},
      {"comm.registered_buffers", "false",
       "true: the gradients of ZeRO 0 and 1 are in memory that NCCL allocates and registers, which saves copies "
       "([docs/gpu.md](gpu.md#registered-buffers))",
       &kDevices},
      {"comm.sums_by_rank", "false",
       "true: reductions over NCCL add in rank order too, with results that are bitwise identical to those of the "
       "other backends. This needs more messages ([docs/gpu.md](gpu.md#reductions-in-rank-order))",
       &kDevices},
      {"comm.recorder", "1024",
       "number of operations that each rank records for `gantry doctor DIR`; 0: none "
       "([docs/troubleshooting.md](troubleshooting.md#find-out-which-rank-hangs))"},

      {"elastic.min_replicas", "1",
       "number of data-parallel replicas below which the loss of a rank ends the job (exit code 7). The section makes "
       "the job elastic: after the loss of a rank, it continues with the remaining replicas "
       "([docs/clusters.md](clusters.md#continue-after-the-loss-of-a-rank)). It requires `gantry launch --backend "
       "tcp`"},
      {"elastic.max_replicas", "auto",
       "maximum number of replicas, at least `elastic.min_replicas`; auto: the replicas with which the job starts"},
      {"elastic.rejoin", "true",
       "true: `gantry launch` starts the lost ranks again, and they join at the end of a step"},
      {"elastic.heartbeat", "1",
       "time in seconds between the heartbeats of a rank; a rank without a heartbeat for five of them is lost"},

      {"libraries", "[]", "list of shared libraries that register policies and model families"},
  };
}

// "data.sources[0].path" -> "data.sources[].path", the form in the list of keys.
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
      if (!item.first.IsScalar()) continue;  // the reader has reported it
      const std::string below = path.empty() ? item.first.Scalar() : path + "." + item.first.Scalar();
      if (const ConfigKey* key = find_config_key(without_places(below))) check(*key, below, item.first.Mark());
      if (below != "model.config" && below != "data.template_kwargs") visit(item.second, below);
    }
  }

 private:
  void check(const ConfigKey& key, const std::string& path, const YAML::Mark& mark) {
    if (key.has_effect(config_) || (only_overridden_ && !faults_.is_overridden(path))) return;
    faults_.add(path, mark, "the key has no effect " + key.context->otherwise(config_), key.context->needs,
                key.context->remedy);
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
