// Creates the parts of a training program from a configuration. `gantry train` uses these functions, and your own main
// can too.
#pragma once

#include <functional>
#include <memory>

#include "gantry/booster/booster.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/plugins/objective_parts.h"

namespace gantry {

// Loads the shared libraries that the configuration lists (plugin_library.h). Call it before ranks start. Throws
// ConfigError.
void load_libraries(const Config& config);

// Returns the configuration with the policy and the model keys from model.path filled in. Throws ConfigError, also for
// a key of model.config that the model family does not know, or InputError. Model keys of a policy without a family are
// not checked; the program that builds the model interprets them.
Config resolve_model(Config config);

// Returns a model of the policy's family in the configured precision, with deferred initial weights, and with adapters
// and frozen parameters according to `lora` and `train.freeze` (lora.h). With train.objective.hidden_weight, it returns
// its hidden states, and may have a matrix that projects them to the size of the teacher's, whose config.json is read.
// The configuration must be resolved.
// Throws ConfigError, for example if more ranks share the layers or the experts than the model has heads or experts.
std::shared_ptr<torch::nn::Module> build_model(const Config& config);

// Returns the configured optimizer (FusedAdamW, LibTorch's SGD, Lion or Muon) with the configured groups. Parameters
// that match no_decay have no weight decay, unless their group sets one. Muon updates the matrices of repeated layers,
// which have a number as a component of their name, and AdamW within it updates all other parameters. Throws
// ConfigError if a pattern matches nothing, or for muon if no matrix belongs to a repeated layer.
std::shared_ptr<torch::optim::Optimizer> build_optimizer(const Config& config, const torch::nn::Module& model);

// Returns the configured training data. They are not opened yet. Throws ConfigError if the model cannot be trained on
// these data.
SampleSource build_samples(const Config& config);

// The same for the held-out data of evaluation.path, which must be set.
SampleSource build_evaluation_samples(const Config& config);

// Returns a loader of the global batches of the configured data, as a single device would see them. Files are opened
// when they are first read, or when the loader is distributed (InputError). Throws ConfigError if the model cannot be
// trained on this data.
std::shared_ptr<DataLoader> build_loader(const Config& config);

// Returns a loader of the held-out samples of `evaluation`, each once and in order; the last batch may be smaller. Null
// without evaluation.path. Throws the same errors.
std::shared_ptr<DataLoader> build_evaluation_loader(const Config& config);

// Returns the configured learning-rate schedule, for boost() and BoostedOptimizer.
LrSchedule build_lr_schedule(const Config& config);

// Returns the criterion for the model's head: cross entropy over tokens or samples, or answer spans. For a
// classification head, problem_type selects mean_squared_error() or binary_cross_entropy(); without that key, the
// number of labels and the type of the labels in data.path decide, as in transformers. Empty for a model without a
// head. With train.objective, returns its loss with `parts`, which must be those of objective_parts() (ConfigError).
Criterion build_criterion(const Config& config, const ObjectiveParts& parts = {});

// The predictions of a model's head, by the scores that they have.
enum class Predictions {
  kNone,          // not scored
  kClasses,       // one class of a sample or token: accuracy and F1
  kSpans,         // a span of tokens: accuracy and F1
  kNumbers,       // numbers of a regression: correlation with the labels
  kSeveralLabels  // labels of a sample that do not exclude each other: accuracy and F1
};
// The configuration must be resolved.
Predictions predictions_of(const Config& config);

// Loads the boosted model's parameters from model.path, and its adapters from lora.path. Each rank reads the parts that
// it holds. Does nothing without a path. Returns the parameters of a new head, which the directory lacks: they keep
// their initial weights. `loaded` is called with the number of bytes of each tensor that was read. Collective over the
// world.
std::vector<std::string> load_weights(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh,
                                      const std::function<void(std::uint64_t)>& loaded = {});

// Throws CheckpointError (with key and values) if the checkpoint belongs to a different model than the configured one.
// load_checkpoint() compares names and shapes, which do not reveal, for example, a different number of heads. Keys that
// do not affect the model's computation (dropout, initial weights, token ids, ...) may differ. Keys that the checkpoint
// lacks, and models whose policy has no family, are not compared. The configuration must be resolved.
void require_same_model(const CheckpointInfo& info, const Config& config);

// Throws CheckpointError, with both names, if the run of the checkpoint had another class of optimizer than this one.
// load_checkpoint() compares the names of the state's tensors, which several optimizers share. The optimizers adamw,
// adamw8bit and adamw_bf16 are one class. Does nothing if the checkpoint has no configuration.
void require_same_optimizer(const CheckpointInfo& info, const Config& config);

}  // namespace gantry
