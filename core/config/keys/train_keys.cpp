// The keys of evaluation and training.
#include <algorithm>
#include <initializer_list>

#include "gantry/core/config/keys/key_lists.h"
#include "gantry/core/config/keys/shared_conditions.h"

namespace gantry {
namespace {

std::string with_objective(const Config& c) {
  return c.train.objective.is_on() ? "with objective " + c.train.objective.name : "without an objective";
}
bool has_objective(const Config& c, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* one) { return c.train.objective.name == one; });
}
const KeyContext kSmoothed = {"train.objective.name dpo or cpo",
                              [](const Config& c) {
                                return has_objective(c, {"dpo", "cpo"});
                              },
                              with_objective};
const KeyContext kTypedLoss = {"train.objective.name dpo, cpo or distill",
                               [](const Config& c) {
                                 return has_objective(c, {"dpo", "cpo", "distill"});
                               },
                               with_objective};
const KeyContext kScaled = {
    "train.objective.name other than reward; distill: loss_type jsd",
    [](const Config& c) {
      return !has_objective(c, {"reward", "distill"}) || c.train.objective.loss_type == "jsd";
    },
    [](const Config& c) {
      return with_objective(c) + (has_objective(c, {"distill"}) ? " and loss_type " + c.train.objective.loss_type : "");
    }};
const KeyContext kKto = {"train.objective.name kto", [](const Config& c) { return has_objective(c, {"kto"}); },
                         with_objective};
const KeyContext kReward = {"train.objective.name reward", [](const Config& c) { return has_objective(c, {"reward"}); },
                            with_objective};
const KeyContext kDistill = {"train.objective.name distill",
                             [](const Config& c) { return has_objective(c, {"distill"}); }, with_objective};
const KeyContext kTopK = {"train.objective.top_k", [](const Config& c) { return c.train.objective.top_k > 0; },
                          [](const Config&) { return std::string("without train.objective.top_k"); },
                          "set train.objective.top_k, or remove the key"};
const KeyContext kSimpo = {"train.objective.name simpo", [](const Config& c) { return has_objective(c, {"simpo"}); },
                           with_objective};
const KeyContext kCpo = {"train.objective.name cpo or simpo",
                         [](const Config& c) {
                           return has_objective(c, {"cpo", "simpo"});
                         },
                         with_objective};
const KeyContext kReferenced = {"train.objective.name dpo, ipo or kto",
                                [](const Config& c) { return c.train.objective.has_reference(); }, with_objective};
const KeyContext kNotFloat16 = {"a precision other than float16, which skips such steps and lowers the loss scale",
                                [](const Config& c) { return !is_float16(c); }, with_precision};
const KeyContext kWithData = {"data.format, which is also the format of the held-out data",
                              [](const Config& c) { return !c.data.format.empty(); },
                              [](const Config&) { return std::string("without data"); },
                              "add a data section, or remove the key"};
const KeyContext kEvaluating = {"evaluation.path", [](const Config& c) { return !c.evaluation.path.empty(); },
                                [](const Config&) { return std::string("without evaluation.path"); },
                                "set evaluation.path, or remove the key"};
const KeyContext kEvaluatingAverages = {
    "evaluation.path and train.ema", [](const Config& c) { return !c.evaluation.path.empty() && c.train.ema > 0; },
    [](const Config& c) { return std::string("without ") + (c.train.ema > 0 ? "evaluation.path" : "train.ema"); },
    "set evaluation.path and train.ema, or remove the key"};
const KeyContext kPrompting = {"evaluation.prompts", [](const Config& c) { return !c.evaluation.prompts.empty(); },
                               [](const Config&) { return std::string("without evaluation.prompts"); }};
const KeyContext kReported = {"output", [](const Config& c) { return !c.output.empty(); },
                              [](const Config&) { return std::string("without output"); }};

}  // namespace

std::vector<ConfigKey> train_keys() {
  return {
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
       "text, or a list of messages (`{role, content}`) that are answered by the chat template. Contents may have "
       "image parts ([docs/evaluation.md](evaluation.md#generated-samples))",
       &kEvaluating},
      {"evaluation.prompt_tokens", "32", "maximum number of generated tokens per prompt", &kPrompting},
      {"evaluation.only", "false",
       "true: no training. The run evaluates once the weights of `model.path`, or of the checkpoint of "
       "`checkpoint.load` or `checkpoint.resume`, and saves no checkpoint",
       &kEvaluating},
      {"evaluation.ema", "false",
       "true: evaluations, and the choice of the best checkpoint, use the averages of `train.ema` in place of the "
       "weights",
       &kEvaluatingAverages},

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
       "run, its steps, actions, messages and saves ([docs/monitoring.md](monitoring.md#opentelemetry)); empty: no "
       "spans"},
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
       "`cpo`: arXiv 2401.08417. `orpo`: arXiv 2403.07691. `kto`: arXiv 2402.01306. `reward`: a reward model, with a "
       "head for one label. "
       "`distill`: distillation from a teacher"},
      {"train.objective.beta", "0.1; 0.5 for distill",
       "factor of the log-probabilities in the rewards; orpo: weight of the odds; distill: weight of the teacher in "
       "the mixture",
       &kScaled},
      {"train.objective.label_smoothing", "0",
       "probability that a preference is wrong, below 0.5, with loss_type sigmoid (conservative DPO) or robust",
       &kSmoothed},
      {"train.objective.loss_type", "sigmoid; forward for distill",
       "dpo: `sigmoid`, `hinge` or `robust` (arXiv 2403.00409). cpo: `sigmoid`, `hinge` or `ipo`. distill: divergence "
       "of the student from the teacher, `forward` (Kullback-Leibler, "
       "of the teacher's distribution), `reverse` or `jsd` (generalized Jensen-Shannon, arXiv 2306.13649)",
       &kTypedLoss},
      {"train.objective.gamma", "0.5", "target margin between the rewards of the two completions", &kSimpo},
      {"train.objective.cpo_alpha", "1 for cpo; 0 for simpo",
       "weight of the mean cross entropy of the step's chosen completions", &kCpo},
      {"train.objective.desirable_weight", "1", "weight of desirable completions", &kKto},
      {"train.objective.undesirable_weight", "1", "weight of undesirable completions", &kKto},
      {"train.objective.center_rewards_coefficient", "0",
       "coefficient of the squared sum of the two scores, which centers them at 0 (arXiv 2312.09244)", &kReward},
      {"train.objective.teacher", "", "directory of the teacher, a decoder with the same vocabulary", &kDistill},
      {"train.objective.teacher_parallel", "",
       "layout of the teacher over the ranks of the run, which need not be that of the student "
       "([docs/preferences.md](preferences.md#the-layout-of-the-teacher)); without it the teacher has the student's "
       "layout",
       &kDistill},
      {"train.objective.teacher_parallel.tensor", "1",
       "number of ranks over which each layer of the teacher is sharded", &kDistill},
      {"train.objective.teacher_parallel.pipeline", "1",
       "number of pipeline ranks, over which the layers of the teacher are partitioned. The remaining ranks are "
       "replicas: ranks / (tensor * pipeline)",
       &kDistill},
      {"train.objective.top_k", "0",
       "number of the teacher's largest log-probabilities of each token that the student learns from. They are "
       "computed once and stored ([docs/preferences.md](preferences.md#stored-log-probabilities)); 0: the full "
       "distribution, "
       "computed in each step",
       &kDistill},
      {"train.objective.teacher_cache", "", "directory in which the log-probabilities of `top_k` are stored", &kTopK},
      {"train.objective.temperature", "1", "divisor of the logits of student and teacher", &kDistill},
      {"train.objective.alpha", "0", "share of the cross entropy of the labels in the loss", &kDistill},
      {"train.objective.hidden_weight", "0",
       "weight of the distance between the last hidden states of student and teacher "
       "([docs/preferences.md](preferences.md#hidden-states)); 0: they are not compared",
       &kDistill},
      {"train.objective.reference", "",
       "directory with the weights of the reference model, in the form of `model.path`, or with a PEFT adapter on the "
       "base of `model.path`; empty: the weights before the first step, without new adapters",
       &kReferenced},
      {"train.objective.reference_cache", "",
       "directory of a cache with the log-probabilities of the reference, for later runs with the same reference and "
       "samples; empty: no cache ([docs/preferences.md](preferences.md#a-cache-of-the-reference))",
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
  };
}

}  // namespace gantry
