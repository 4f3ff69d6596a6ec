#include "gantry/trainer/reference_scores.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "gantry/booster/lora_names.h"
#include "gantry/booster/preference_step.h"
#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/disk_work.h"
#include "gantry/checkpoint/format/adapter_config.h"
#include "gantry/core/error.h"
#include "gantry/data/sample_digest.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/reference_cache.h"

namespace gantry {
namespace {

constexpr const char* kReferenceKey = "train.objective.reference";

bool uses_cache(const Config& config) { return !config.train.objective.reference_cache.empty(); }

void require_reference(const Config& config) {
  if (!config.train.objective.reference.empty()) {
    if (config.model.path.empty())
      throw ConfigError({kReferenceKey, "the model has no model.path, whose form the reference has", "model.path",
                         "set model.path, or remove the key"});
  } else if (!config.checkpoint.load.empty()) {
    throw ConfigError({"checkpoint.load", "the reference model cannot be a checkpoint",
                       "the directory of a model in train.objective.reference",
                       "export the checkpoint with gantry checkpoint export, and set model.path"});
  }
}

// The same on all ranks, by the files of rank 0.
bool is_adapter_reference(const Config& config, ProcessGroup& group) {
  if (config.train.objective.reference.empty()) return false;
  const bool is_mine = group.rank() == 0 && reference_form(config) == ReferenceForm::kAdapter;
  return all_reduce_number(group, is_mine ? 1 : 0) > 0;
}

void refuse_own_model(const char* key, const char* reason) {
  throw ConfigError({key, std::string("the program passes the Trainer a model of its own, ") + reason,
                     "a model of the configuration", "remove the key, or pass the Trainer no model"});
}

// Loads the reference weights: those of the run before its first step, with the adapters of lora.path, or those of
// train.objective.reference, with new adapters, which change nothing.
void load_reference(const Config& config, Boosted& boosted, const ProcessGroupMesh& mesh) {
  Config reference = config;
  if (const std::string& folder = config.train.objective.reference; !folder.empty()) {
    reference.model.path = folder;
    reference.lora.path.clear();
  }
  load_weights(reference, boosted, mesh);
}

// The configuration of a run that trains the adapter of the reference on the base of this run.
Config config_of_adapter(const Config& config) {
  Config adapter = config;
  adapter.lora = {};
  adapter.lora.path = config.train.objective.reference;
  adapter.lora = lora_of_family(adapter, resolve_lora(std::move(adapter.lora)));
  adapter.optimizer = {};
  adapter.train.freeze.clear();
  adapter.train.neftune_alpha = 0;
  adapter.train.ema = 0;
  adapter.train.device_graphs = false;
  adapter.train.objective = {};
  return adapter;
}

std::shared_ptr<torch::nn::Module> build_adapted(const Config& adapter) try {
  return build_model(adapter);
} catch (const ConfigError& error) {
  throw ConfigError({kReferenceKey, fmt::format("the adapter in {} does not fit: {}", adapter.lora.path, error.what()),
                     "an adapter of the model", "choose another directory"});
}

void score_batch(Booster& booster, const Batch& batch, Boosted& boosted, const Criterion& criterion) {
  booster.execute_pipeline(batch, boosted, {.broadcast_loss = true, .forward_only = true, .criterion = criterion});
}

}  // namespace

ReferenceScorer::ReferenceScorer(const Config& config, World& world, ProcessGroup& group, bool built, bool has_held_out,
                                 std::shared_ptr<ReferenceScores> scores)
    : config_(config), world_(world), group_(group), scores_(std::move(scores)) {
  require_reference(config);
  if (!built && uses_cache(config))
    refuse_own_model("train.objective.reference_cache", "and its initial weights have no identity");
  const bool is_adapter = is_adapter_reference(config, group);
  if (!built && is_adapter) refuse_own_model(kReferenceKey, "and no second model with the adapter can be built");
  parts_.push_back({.source = build_samples(config)});
  if (has_held_out) parts_.push_back({.source = build_evaluation_samples(config)});
  if (uses_cache(config)) read_cache();
  if (std::ranges::all_of(parts_, &Part::is_stored)) {
    make_rows();
    finish();
  } else if (is_adapter) {
    score_adapter();
  }
}

ReferenceScorer::~ReferenceScorer() = default;

void ReferenceScorer::read_cache() {
  DiskProgress progress;
  work_on_disk(group_, disk_limits(config_.comm.timeout_seconds, "reading train.objective.reference_cache"), progress,
               [&] {
                 if (!world_.is_main()) return;
                 const auto add = [&](std::uint64_t bytes) { progress.add(bytes); };
                 const int workers = config_.data.workers > 0 ? config_.data.workers : at::get_num_threads();
                 cache_ = std::make_unique<const ReferenceCache>(config_, add);
                 for (Part& part : parts_) {
                   part.digest = sample_digest(part.source, workers, add);
                   part.stored = cache_->find(part.digest, add);
                 }
               });
  for (Part& part : parts_) {
    const double rows = part.stored.defined() ? static_cast<double>(part.stored.size(0)) : 0;
    part.rows = static_cast<std::int64_t>(all_reduce_number(group_, rows));
    part.is_stored = part.rows > 0;
  }
}

// The model has an optimizer, so that ZeRO 3 shards its weights as those of the run.
void ReferenceScorer::score_adapter() {
  const Config adapter = config_of_adapter(config_);
  World world(world_.backend(), adapter, world_.mesh());
  Booster booster(std::make_unique<HybridParallelPlugin>(world, parallel_options(adapter, world.mesh())));
  const auto model = build_adapted(adapter);
  Boosted boosted = booster.boost(BoostRequest{.model = model,
                                               .optimizer = build_optimizer(adapter, *model),
                                               .criterion = preference_scores(scores_),
                                               .policy = policies().at(adapter.model.policy)()});
  load_weights(adapter, boosted, booster.mesh());
  compute(booster, boosted);
  finish();
}

void ReferenceScorer::score(Booster& booster, Boosted& boosted) {
  if (is_done_) return;
  load_reference(config_, boosted, booster.mesh());
  compute(booster, boosted);
  finish();
}

void ReferenceScorer::compute(Booster& booster, Boosted& boosted) {
  std::vector<DataLoader> loaders;
  for (Part& part : parts_) {
    if (part.is_stored) continue;
    loaders.emplace_back(
        part.source, DataLoaderOptions{.global_batch = config_.data.batch_size, .shuffle = false, .keep_last = true});
    booster.distribute(loaders.back(), boosted);
    part.rows = loaders.back().samples();
  }
  make_rows();
  for (const DataLoader& loader : loaders)
    for (std::int64_t i = 0; i < loader.steps(); ++i) {
      const Batch batch = loader.batch(i);
      score_batch(booster, batch, boosted, preference_scores(scores_));
      if (config_.train.objective.name == "kto")
        score_batch(booster, with_other_completions(batch), boosted, preference_scores(scores_, 1));
    }
}

// A rank has the scores of its own samples, rank 0 also those of the cache, and -infinity for the others.
void ReferenceScorer::make_rows() {
  std::int64_t rows = 0;
  for (const Part& part : parts_) rows += part.rows;
  scores_->trained = parts_.front().rows;
  scores_->scores = torch::full({rows, 2}, -std::numeric_limits<double>::infinity(), torch::kFloat64);
  rows = 0;
  for (const Part& part : parts_) {
    if (part.stored.defined()) scores_->scores.narrow(0, rows, part.rows).copy_(part.stored);
    rows += part.rows;
  }
}

void ReferenceScorer::finish() {
  group_.all_reduce(scores_->scores, ReduceOp::kMax).wait();
  if (uses_cache(config_)) store();
  if (world_.is_main()) fmt::print("reference: log-probabilities of {}\n", description());
  is_done_ = true;
}

void ReferenceScorer::store() {
  DiskProgress progress;
  work_on_disk(group_, disk_limits(config_.comm.timeout_seconds, "writing train.objective.reference_cache"), progress,
               [&] {
                 if (!world_.is_main()) return;
                 WatchedFiles files(system_files(), progress);
                 std::int64_t first = 0;
                 for (const Part& part : parts_) {
                   if (!part.is_stored) cache_->store(part.digest, scores_->scores.narrow(0, first, part.rows), files);
                   first += part.rows;
                 }
               });
}

std::string ReferenceScorer::description() const {
  std::int64_t read = 0;
  for (const Part& part : parts_) read += part.is_stored ? part.rows : 0;
  const std::int64_t all = scores_->scores.size(0);
  const std::string& cache = config_.train.objective.reference_cache;
  const char* samples = config_.train.objective.name == "kto" ? "completions" : "pairs of completions";
  const std::string text = fmt::format("{} {}", all, samples);
  if (cache.empty()) return text;
  if (read == 0) return fmt::format("{}, computed and stored in {}", text, cache);
  if (read == all) return fmt::format("{}, read from {}", text, cache);
  return fmt::format("{}, {} read from {} and {} computed and stored there", text, read, cache, all - read);
}

}  // namespace gantry
