#include "gantry/trainer/run_checkpoints.h"

#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/foreign.h"
#include "gantry/checkpoint/format/run_changes.h"
#include "gantry/core/error.h"
#include "gantry/core/strict_json.h"

namespace gantry {
namespace {

// A variable of `gantry launch`; 0 without it.
int count_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

double rate_of(const Boosted& boosted, std::int64_t step) {
  if (boosted.lr_schedule) return boosted.lr_schedule->at(step);
  return boosted.optimizer->inner().param_groups().front().options().get_lr();
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

RunCheckpoints::RunCheckpoints(World& world, const Config& config, Plugin& plugin, std::function<void()> before_print)
    : world_(world),
      config_(config),
      plugin_(plugin),
      before_print_(std::move(before_print)),
      disk_(disk_limits(config.comm.timeout_seconds)) {
  const auto& settings = config_.checkpoint;
  config_.honour("checkpoint.path");
  if (settings.path.empty()) return;
  writer_ = std::make_unique<CheckpointWriter>(
      settings.path, plugin_.mesh(),
      WriterOptions{.async = settings.async, .disk = disk_, .warn = [this](const std::string& line) { warn(line); }});
}

void RunCheckpoints::warn(const std::string& line) const {
  if (!world_.is_main()) return;
  before_print_();
  fmt::print(stderr, "warning: {}\n", line);
}

// On rank 0, for all.
std::optional<CompleteCheckpoint> RunCheckpoints::choose() const {
  const auto& settings = config_.checkpoint;
  look_for_foreign_ones();
  if (settings.resume == "none") return std::nullopt;
  const auto warn_of_passed_over = [this](const std::string& fault) { warn("passed over " + fault); };
  if (settings.resume != "auto") return require_complete_checkpoint(settings.resume, warn_of_passed_over);
  FoundCheckpoint found = find_newest_checkpoint(settings.path);
  if (!found.folder && found.passed_over.empty()) return std::nullopt;
  for (const auto& passed : found.passed_over) warn_of_passed_over(passed.fault);
  if (!found.folder) return require_complete_checkpoint(settings.path);  // says what is wrong
  return CompleteCheckpoint{*found.folder, std::move(found.manifest)};
}

std::int64_t RunCheckpoints::resume(Boosted& boosted) {
  const auto agreed = agree_on_checkpoint(
      plugin_.mesh(), [this] { return choose(); }, disk_);
  if (!agreed) return 0;
  const CheckpointInfo info = agreed->info();
  require_same_model(info, config_);
  compare_with(info, *boosted.loader);
  load_checkpoint(*agreed, plugin_.state(boosted), plugin_.mesh(), {}, disk_);
  seek_data(info, *boosted.loader);
  if (world_.is_main()) fmt::print("resuming from {} at step {}\n", info.path, info.step);
  warn_of_threads(info);
  return info.step;
}

void RunCheckpoints::seek_data(const CheckpointInfo& info, DataLoader& loader) const {
  const nlohmann::json data = info.progress.value("data", nlohmann::json::object());
  if (!data.is_object() || !data.contains("samples")) return loader.seek(info.step * loader.global_batch());
  const auto samples = count_in(data["samples"]);
  if (!samples) throw CheckpointError({info.path, "has a data cursor that is no count", "", "use another"});
  loader.seek(*samples);
}

// Nothing is removed: a restart, or a later `auto`, would find them.
void RunCheckpoints::look_for_foreign_ones() const {
  const auto& settings = config_.checkpoint;
  if (count_of("GANTRY_RESTARTS") > 0) refuse_foreign_checkpoint(settings.path, settings.resume);
  if (const auto foreign = find_foreign_checkpoint(settings.path, settings.resume))
    warn(*foreign + " is of an earlier run; resume: auto would take it until this run saves a later step");
}

// An imported model has no run behind it, and a program of one's own may save without a configuration.
void RunCheckpoints::compare_with(const CheckpointInfo& info, const DataLoader& loader) const {
  if (info.step == 0 || info.config_text.empty()) return;
  const nlohmann::json data = info.progress.value("data", nlohmann::json::object());
  const auto number = [&](const char* key) {
    return data.is_object() && data.contains(key) ? count_in(data[key]) : std::nullopt;
  };
  const DataPlace place{number("samples").value_or(0), number("epoch_samples"), loader.samples()};
  std::vector<RunChange> moving;
  for (const auto& change : changes_between(Config::parse(info.config_text, info.path), config_, place)) {
    if (change.moves_samples && !config_.checkpoint.allow_changes)
      moving.push_back(change);
    else if (change.effect.empty() && world_.is_main())
      fmt::print("the checkpoint {}\n", describe({change}));
    else
      warn(fmt::format("the checkpoint {}: {}", describe({change}), change.effect));
  }
  if (!moving.empty())
    throw CheckpointError({info.path, describe(moving) + ": samples would be skipped or repeated",
                           "the data and the order that it was made with",
                           "go on with those, or set checkpoint.allow_changes: true"});
}

void RunCheckpoints::warn_of_threads(const CheckpointInfo& info) const {
  if (info.step > 0 && info.threads_per_rank != at::get_num_threads())
    warn(
        fmt::format("the checkpoint was made with {} threads a rank, this run has {}: numbers may differ in their "
                    "last bits",
                    info.threads_per_rank, at::get_num_threads()));
}

bool RunCheckpoints::saves_at(std::int64_t step) const {
  const int every = config_.checkpoint.every;
  return every > 0 && step % every == 0;
}

bool RunCheckpoints::save(std::int64_t step, Boosted& boosted) {
  if (!writer_ || std::exchange(saved_step_, step) == step) return false;
  const auto& model_keys = config_.model.config_json;
  const SaveRequest request{
      .directory = config_.checkpoint.path,
      .step = step,
      .config_text = config_.to_yaml(),
      .model_config = nlohmann::json::parse(model_keys.empty() ? "{}" : model_keys),
      .policy = config_.model.policy,
      .keep = config_.checkpoint.keep,
      .threads_per_rank = at::get_num_threads(),
      .progress = {{"learning_rate", rate_of(boosted, step)},
                   {"data", {{"samples", boosted.loader->position()}, {"epoch_samples", boosted.loader->samples()}}},
                   {"random", {{"seed", config_.train.seed}, {"step", step}}}},
      .user = nlohmann::json::object()};
  writer_->save(request, plugin_.state(boosted));
  return true;
}

void RunCheckpoints::check() {
  if (writer_) writer_->check();
}

std::string RunCheckpoints::finish() {
  if (!writer_) return "";
  writer_->finish();
  return writer_->last();
}

}  // namespace gantry
