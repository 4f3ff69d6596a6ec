// From a configuration to the parts of a training program: what `gantry train` does, for a user's own main too.
#pragma once

#include <functional>
#include <memory>

#include "gantry/booster/booster.h"
#include "gantry/checkpoint/checkpoint.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"

namespace gantry {

// Loads the shared libraries that the configuration names (plugin_library.h). Before ranks start. ConfigError.
void load_libraries(const Config& config);

// The configuration with what model.path says filled in: the policy and the model's own keys. ConfigError, also for a
// key of model.config that the model's family does not know, or InputError. Keys of a policy without a family are for
// the program that builds its model.
Config resolve_model(Config config);

// A model of the policy's family in the configured precision, with deferred initial weights, and with adapters and
// frozen parameters as `lora` and `train.freeze` say (lora.h). The configuration is resolved.
std::shared_ptr<torch::nn::Module> build_model(const Config& config);

// The configured optimizer (FusedAdamW, LibTorch's SGD, Lion or Muon) with the configured groups: parameters that
// no_decay names have no weight decay. Muon has the matrices of repeated layers, AdamW within it all else: a matrix is
// of a repeated layer where a part of its name is a number. ConfigError for a pattern that matches nothing, and for
// muon where no matrix is of a repeated layer.
std::shared_ptr<torch::optim::Optimizer> build_optimizer(const Config& config, const torch::nn::Module& model);

// The global batches of the configured data, as one device would see them; files are opened where they are first read,
// or when the loader is distributed (InputError). ConfigError for data that this model can't be trained on.
std::shared_ptr<DataLoader> build_loader(const Config& config);

// The held-out samples of `evaluation`, each once and in order, the last batch as short as it comes; null without one.
// The same errors.
std::shared_ptr<DataLoader> build_evaluation_loader(const Config& config);

LrSchedule build_lr_schedule(const Config& config);

// What the model's head is trained with: cross entropy over tokens or samples, answer spans, or nothing for a model
// without a head.
Criterion build_criterion(const Config& config);

// Whether the model's head chooses one of a few classes for a sample or a token, or marks a span, so that accuracy and
// F1 say something. The configuration is resolved.
bool predicts_classes(const Config& config);

// Fills the boosted model's parameters from model.path, and its adapters from lora.path, each rank reading what it
// holds; nothing without a path.
// Returns the parameters of a new head, which the directory lacks: they keep their initial weights. `loaded` is called
// with the bytes that each tensor took. A disk may take its time. Collective over the world.
std::vector<std::string> load_weights(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh,
                                      const std::function<void(std::uint64_t)>& loaded = {});

// CheckpointError, naming the key and both values, where the checkpoint is of another model than the configured one:
// names and shapes, which load_checkpoint() compares, do not tell four heads from two. What does not change what the
// model computes (dropout, initial weights, token ids, ...) may differ. Nothing is compared that the checkpoint does
// not say, or of a model whose policy has no family. The configuration is resolved.
void require_same_model(const CheckpointInfo& info, const Config& config);

}  // namespace gantry
