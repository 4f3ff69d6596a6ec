#include "gantry/cli/engine/run_checkpoints.h"

#include <cstdlib>
#include <fmt/format.h>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/foreign.h"
#include "gantry/cli/engine/stop_signals.h"
#include "gantry/cli/output.h"
#include "gantry/core/error.h"
#include "gantry/core/strict_json.h"

namespace gantry::cli {
namespace {

// A variable of `gantry launch`; 0 without it.
int count_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

}  // namespace

Config resume_after_restart(Config config) {
  if (count_of("GANTRY_RESTART") == 0) return config;
  auto& settings = config.checkpoint;
  if (settings.path.empty())
    throw ConfigError({"checkpoint.path", "is missing in a run that was started again", "where it has saved",
                       "set it, or start without --restarts"});
  if (settings.resume == "none" || find_newest_checkpoint(settings.path).folder) settings.resume = "auto";
  return config;
}

RunCheckpoints::RunCheckpoints(World& world, const Config& config, HybridParallelPlugin& plugin)
    : world_(world), config_(config), plugin_(plugin) {
  const auto& settings = config_.checkpoint;
  if (!settings.path.empty())
    writer_ = std::make_unique<CheckpointWriter>(settings.path, plugin_.mesh(), WriterOptions{.async = settings.async});
}

std::int64_t RunCheckpoints::resume(Boosted& boosted) {
  const auto& settings = config_.checkpoint;
  if (world_.is_main()) look_for_foreign_ones();
  if (settings.resume == "none") return 0;
  std::string folder = settings.resume;
  if (settings.resume == "auto") {
    const FoundCheckpoint found = find_newest_checkpoint(settings.path);
    if (!found.folder && found.passed_over.empty()) return 0;
    if (world_.is_main())
      for (const auto& passed : found.passed_over) warn_of_passed_over(passed.fault);
    folder = found.folder.value_or(settings.path);
  }
  folder = require_checkpoint(folder, [this](const std::string& fault) {
    if (world_.is_main()) warn_of_passed_over(fault);
  });
  const auto info = read_checkpoint_info(folder);
  require_same_model(info, config_);
  load_checkpoint(folder, plugin_.state(boosted), plugin_.mesh());
  seek_data(info, *boosted.loader);
  if (world_.is_main()) {
    fmt::print("resuming from {} at step {}\n", folder, info.step);
    warn_of_changes(info);
  }
  return info.step;
}

void RunCheckpoints::seek_data(const CheckpointInfo& info, DataLoader& loader) const {
  const nlohmann::json data = info.progress.value("data", nlohmann::json::object());
  if (!data.is_object() || !data.contains("samples")) return loader.seek(info.step * config_.data.batch_size);
  const auto samples = count_in(data["samples"]);
  if (!samples) throw CheckpointError({info.path, "has a data cursor that is no count", "", "use another"});
  loader.seek(*samples);
}

// Nothing is removed: a restart, or a later `auto`, would find them.
void RunCheckpoints::look_for_foreign_ones() const {
  const auto& settings = config_.checkpoint;
  if (count_of("GANTRY_RESTARTS") > 0) refuse_foreign_checkpoint(settings.path, settings.resume);
  if (const auto foreign = find_foreign_checkpoint(settings.path, settings.resume))
    fmt::print(stderr,
               "warning: {} is of an earlier run; resume: auto would take it until this run saves a later step\n",
               *foreign);
}

// What may be changed, and yet makes other numbers of the rest of the run than it would have had.
void RunCheckpoints::warn_of_changes(const CheckpointInfo& info) const {
  if (info.step == 0) return;
  if (info.threads_per_rank != at::get_num_threads())
    fmt::print(stderr,
               "warning: the checkpoint was made with {} threads a rank, this run has {}: numbers may differ in "
               "their last bits\n",
               info.threads_per_rank, at::get_num_threads());
  const nlohmann::json random = info.progress.value("random", nlohmann::json::object());
  const auto seed = random.is_object() && random.contains("seed") ? count_in(random["seed"]) : std::nullopt;
  if (seed && static_cast<std::uint64_t>(*seed) != config_.train.seed)
    fmt::print(stderr,
               "warning: the checkpoint was made with train.seed {}, this run has {}: the order of the data and "
               "dropout are others from here on\n",
               *seed, config_.train.seed);
}

void RunCheckpoints::after_step(std::int64_t step, bool last, double lr, Boosted& boosted) {
  if (!writer_) return;
  writer_->check();
  const int every = config_.checkpoint.every;
  if (!last && (every == 0 || step % every != 0)) return;
  const auto& model_keys = config_.model.config_json;
  const SaveRequest request{.directory = config_.checkpoint.path,
                            .step = step,
                            .config_text = config_.to_yaml(),
                            .model_config = nlohmann::json::parse(model_keys.empty() ? "{}" : model_keys),
                            .policy = config_.model.policy,
                            .keep = config_.checkpoint.keep,
                            .threads_per_rank = at::get_num_threads(),
                            .progress = {{"learning_rate", lr},
                                         {"data", {{"samples", boosted.loader->position()}}},
                                         {"random", {{"seed", config_.train.seed}, {"step", step}}}},
                            .user = nlohmann::json::object()};
  writer_->save(request, plugin_.state(boosted));
}

bool RunCheckpoints::asked_to_stop() {
  if (!writer_) return false;
  return all_reduce_number(plugin_.mesh().world_group(), stop_requested() ? 1 : 0, ReduceOp::kMax) > 0;
}

std::string RunCheckpoints::finish() {
  if (!writer_) return "";
  writer_->finish();
  return writer_->last();
}

}  // namespace gantry::cli
