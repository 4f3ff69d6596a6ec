// The keys of the layout over ranks: parallel, experts and schedule.
#include "gantry/core/config/keys/key_lists.h"
#include "gantry/core/config/schedule_names.h"

namespace gantry {
namespace {

std::string with_schedule(const Config& c) { return "with schedule " + c.schedule.name; }
const KeyContext kGenerated = {"a named schedule; a FILE.csv has its own chunks",
                               [](const Config& c) { return !is_schedule_file(c.schedule.name); }, with_schedule};
const KeyContext kInterleaved = {"schedule.name interleaved_1f1b",
                                 [](const Config& c) { return c.schedule.name == "interleaved_1f1b"; }, with_schedule};
const KeyContext kSharedVocabulary = {"parallel.vocabulary pipeline or auto",
                                      [](const Config& c) { return c.parallel.vocabulary != "stages"; },
                                      [](const Config& c) { return "with vocabulary " + c.parallel.vocabulary; }};
const KeyContext kRecomputing = {
    "schedule.recompute selective, parts or full",
    [](const Config& c) { return c.schedule.recompute != "none" && c.schedule.recompute != "auto"; },
    [](const Config& c) {
      return std::string(c.schedule.recompute == "auto" ? "with recompute auto, which "
                                                          "chooses the layers"
                                                        : "without recompute");
    },
    "set schedule.recompute, or remove the key"};
const KeyContext kChoosing = {"schedule.recompute auto", [](const Config& c) { return c.schedule.recompute == "auto"; },
                              [](const Config& c) { return "with recompute " + c.schedule.recompute; },
                              "set schedule.recompute: auto, or remove the key"};
const KeyContext kContext = {"parallel.context above 1", [](const Config& c) { return c.parallel.context > 1; },
                             [](const Config&) { return std::string("with parallel.context 1"); },
                             "set parallel.context, or remove the key"};
const KeyContext kTensorRanks = {"parallel.tensor above 1", [](const Config& c) { return c.parallel.tensor > 1; },
                                 [](const Config&) { return std::string("with parallel.tensor 1"); },
                                 "set parallel.tensor, or remove the key"};
const KeyContext kUlyssesRing = {"parallel.context_method ulysses_ring",
                                 [](const Config& c) { return c.parallel.context_method == "ulysses_ring"; },
                                 [](const Config& c) { return "with context_method " + c.parallel.context_method; }};
const KeyContext kFullyShards = {
    "parallel.zero 3", [](const Config& c) { return c.parallel.zero == 3; },
    [](const Config& c) { return "with parallel.zero " + std::to_string(c.parallel.zero); },
    "set parallel.zero: 3, or remove the key"};
const KeyContext kExpertRanks = {"parallel.expert above 1", [](const Config& c) { return c.parallel.expert > 1; },
                                 [](const Config&) { return std::string("with parallel.expert 1"); },
                                 "set parallel.expert, or remove the key"};
const KeyContext kBalanced = {"an experts.balance other than none",
                              [](const Config& c) { return c.experts.balance != "none"; },
                              [](const Config&) { return std::string("with experts.balance none"); },
                              "set experts.balance to sequence, microbatch or transformers"};

}  // namespace

std::vector<ConfigKey> layout_keys() {
  return {
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
       "biases stay constant. Requires routers that have this bias; not supported with lora"},

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
       "`\"Et*3\\|(tt\\|)*2t\\|L\"`, in which `m` is a layer of multi-token prediction"},
  };
}

}  // namespace gantry
