#include "gantry/trainer/run_checkpoints.h"

#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/run_changes.h"
#include "gantry/checkpoint/format/sampled_content.h"
#include "gantry/checkpoint/format/unrelated.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/dataset.h"
#include "gantry/launch/generation.h"
#include "gantry/models/hidden_states.h"
#include "gantry/trainer/data_contents.h"
#include "gantry/trainer/held_out_record.h"
#include "gantry/trainer/stream_places.h"

namespace gantry {
namespace {

// Time for a lost rank to end, because the next generation of an elastic job needs its lock.
constexpr double kLockSeconds = 20;

// Keys of a checkpoint's progress in the data.
constexpr const char* kContents = "contents";
constexpr const char* kTokenizer = "tokenizer";

// Returns an environment variable that `gantry launch` sets; 0 if it is not set.
int count_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

// Only the parameters of the model in a state, and the master weights that are restored from them. The optimizer state
// is that before the first step, as is the matrix that projects hidden states.
class Weights final : public StateSource {
 public:
  explicit Weights(StateSource& whole) : complete_(whole) {}
  std::vector<StateEntry> state_entries() override {
    auto entries = complete_.state_entries();
    std::erase_if(entries, [](const StateEntry& entry) {
      return (entry.kind != kModel && entry.fallback != kModel) ||
             models::is_hidden_projection(entry.held.placement.name);
    });
    return entries;
  }
  int first_holder(const Placement& placement) const override { return complete_.first_holder(placement); }
  nlohmann::json state_numbers() const override { return {{"optimizer_steps", 0}}; }
  void load_state_numbers(const nlohmann::json& /*numbers*/) override { complete_.load_state_numbers(state_numbers()); }

 private:
  static constexpr const char* kModel = "model";
  StateSource& complete_;
};

// Contents that the checkpoint has under this key of its data; empty if it has none.
std::vector<SampledContent> contents_of(const CheckpointInfo& info, const char* key) {
  const auto data = info.progress.is_object() ? info.progress.value("data", nlohmann::json()) : nlohmann::json();
  return data.is_object() ? contents_from_json(data.value(key, nlohmann::json())) : std::vector<SampledContent>();
}

// Returns the start time of the run whose checkpoint will be resumed; the current time without one. Faulty
// checkpoints are ignored here, because resume() reports them.
std::int64_t start_of_run(const CheckpointConfig& settings) try {
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  if (settings.resume == "none") return now;
  const auto folder = settings.resume == "auto" ? find_newest_checkpoint(settings.path).folder
                                                : std::optional(require_checkpoint(settings.resume));
  if (!folder) return now;
  const nlohmann::json progress = read_checkpoint_info(*folder).progress;
  return progress.is_object() ? count_in(progress.value("started", nlohmann::json())).value_or(now) : now;
} catch (const Error&) {
  return static_cast<std::int64_t>(std::time(nullptr));
}

}  // namespace

Config resume_after_restart(Config config) {
  if (count_of("GANTRY_RESTART") == 0) return config;
  auto& settings = config.checkpoint;
  if (settings.path.empty())
    throw ConfigError({"checkpoint.path", "the key is missing, but this run was restarted",
                       "the directory of its checkpoints", "set it, or start without --restarts"});
  if (settings.resume == "none" || find_newest_checkpoint(settings.path).folder) settings.resume = "auto";
  return config;
}

RunCheckpoints::RunCheckpoints(World& world, const Config& config, Plugin& plugin, std::function<void()> before_print)
    : world_(world),
      config_(config),
      plugin_(plugin),
      before_print_(std::move(before_print)),
      disk_(disk_limits(config.comm.timeout_seconds)),
      held_out_(std::make_unique<HeldOutRecord>()) {
  const auto& settings = config_.checkpoint;
  config_.mark_used("checkpoint.path");
  config_.mark_used("checkpoint.load");
  if (settings.path.empty()) return;
  writer_ = std::make_unique<CheckpointWriter>(
      settings.path, plugin_.mesh(),
      WriterOptions{.async = settings.async,
                    .lock_seconds = current_generation() && current_generation()->number() > 0 ? kLockSeconds : 0,
                    .disk = disk_,
                    .warn = [this](const std::string& line) { warn(line); }});
}

RunCheckpoints::~RunCheckpoints() = default;

void RunCheckpoints::warn(const std::string& line) const {
  if (!world_.is_main()) return;
  before_print_();
  print_warning(line);
}

// Called on rank 0 on behalf of all ranks.
std::optional<CompleteCheckpoint> RunCheckpoints::choose() const {
  const auto& settings = config_.checkpoint;
  look_for_foreign_ones();
  if (settings.resume == "none") return std::nullopt;
  const auto warn_of_passed_over = [this](const std::string& fault) { warn("a checkpoint was passed over: " + fault); };
  if (settings.resume != "auto") return require_complete_checkpoint(settings.resume, warn_of_passed_over);
  FoundCheckpoint found = find_newest_checkpoint(settings.path);
  if (!found.folder && found.passed_over.empty()) return std::nullopt;
  for (const auto& passed : found.passed_over) warn_of_passed_over(passed.fault);
  if (!found.folder) return require_complete_checkpoint(settings.path);  // throws an error with the reason
  return CompleteCheckpoint{*found.folder, std::move(found.manifest)};
}

void RunCheckpoints::load_weights_alone(Boosted& boosted) {
  const auto agreed = agree_on_checkpoint(
      plugin_.mesh(),
      [this]() -> std::optional<CompleteCheckpoint> {
        return require_complete_checkpoint(config_.checkpoint.load, [this](const std::string& fault) {
          warn("a checkpoint was passed over: " + fault);
        });
      },
      disk_);
  const CheckpointInfo info = agreed->info();
  require_same_model(info, config_);
  Weights weights(plugin_.state(boosted));
  load_checkpoint(*agreed, weights, plugin_.mesh(), {}, disk_);
  companions_ = companion_directory(agreed->folder, *agreed->manifest);
  if (world_.is_main()) fmt::print("weights of {} at step {}\n", info.path, info.step);
}

std::int64_t RunCheckpoints::first_start() const {
  double start = 0;
  work_on_disk(plugin_.mesh().world_group(), disk_, {}, [&] {
    if (world_.is_main()) start = static_cast<double>(start_of_run(config_.checkpoint));
  });
  return static_cast<std::int64_t>(all_reduce_number(plugin_.mesh().world_group(), start));
}

std::int64_t RunCheckpoints::resume(Boosted& boosted) {
  const auto agreed = agree_on_checkpoint(
      plugin_.mesh(), [this] { return choose(); }, disk_);
  if (!agreed) {
    sample_data({});
    if (!config_.checkpoint.load.empty()) load_weights_alone(boosted);
    return 0;
  }
  const CheckpointInfo info = agreed->info();
  require_same_model(info, config_);
  if (!config_.evaluation.only) require_same_optimizer(info, config_);  // an evaluation reads only the weights
  compare_with(info, *boosted.loader, sample_data(info));
  load_checkpoint(*agreed, plugin_.state(boosted), plugin_.mesh(), {}, disk_);
  companions_ = companion_directory(agreed->folder, *agreed->manifest);
  seek_data(info, *boosted.loader);
  if (info.progress.is_object()) held_out_->restore(info.progress.value("held_out", nlohmann::json()));
  if (world_.is_main()) fmt::print("resuming from {} at step {}\n", info.path, info.step);
  warn_of_threads(info);
  warn_of_rates(info);
  return info.step;
}

void RunCheckpoints::continue_run(std::string companions) {
  companions_ = std::move(companions);
  sample_data({});
}

void RunCheckpoints::seek_data(const CheckpointInfo& info, DataLoader& loader) const {
  const nlohmann::json data = info.progress.value("data", nlohmann::json::object());
  if (loader.reads_streams() || (data.is_object() && data.contains("streams"))) return seek_streams(info, loader);
  if (!data.is_object() || !data.contains("samples")) return loader.seek(info.step * loader.global_batch());
  const auto samples = count_in(data["samples"]);
  if (!samples) throw CheckpointError({info.path, "its data cursor is not a count", "", "use another checkpoint"});
  loader.seek(*samples);
}

void RunCheckpoints::seek_streams(const CheckpointInfo& info, DataLoader& loader) const {
  if (info.step == 0) return;
  std::string difference;
  const LoaderPlace place = stream_places(info, loader, difference);
  if (difference.empty()) {
    loader.seek(place);
    DiskProgress progress;
    work_on_disk(plugin_.mesh().world_group(), disk_limits(config_.comm.timeout_seconds, "opening the streams"),
                 progress, [&] { loader.open(); });
    return;
  }
  if (!config_.checkpoint.allow_changes)
    throw CheckpointError(
        {info.path, difference + ": samples would be skipped or repeated",
         "the streams that the checkpoint was made with",
         "restore them, or set checkpoint.allow_changes: true to read the data from their beginning"});
  warn(difference + ": the data are read from their beginning");
}

// Rank 0 reads the files on behalf of all ranks. Files that it cannot read are unknown, because another rank
// may be able to read them.
bool RunCheckpoints::sample_data(const CheckpointInfo& info) {
  nlohmann::json found = {
      {kContents, nlohmann::json::array()}, {kTokenizer, nlohmann::json::array()}, {"begins", false}};
  if (world_.is_main()) try {
      found[kTokenizer] = to_json(tokenizer_contents(config_));
      const auto before = contents_of(info, kContents);
      found[kContents] = to_json(data_contents(config_.data));
      found["begins"] = before.size() == 1 && begins_with(config_.data, before[0]);
    } catch (const InputError&) {
    }
  found = nlohmann::json::parse(broadcast_text(plugin_.mesh().world_group(), found.dump(), 0));
  contents_ = contents_from_json(found[kContents]);
  tokenizer_contents_ = contents_from_json(found[kTokenizer]);
  return found["begins"].get<bool>();
}

// Reports checkpoints of other runs in the directory, which a restart or a later `resume: auto` would load.
// Removes none.
void RunCheckpoints::look_for_foreign_ones() const {
  const auto& settings = config_.checkpoint;
  if (count_of("GANTRY_RESTARTS") > 0) refuse_foreign_checkpoint(settings.path, settings.resume);
  if (const auto foreign = find_unrelated_checkpoint(settings.path, settings.resume))
    warn(*foreign + " is from an earlier run; resume: auto would load it until this run saves a later step");
}

// Skips checkpoints without a run (step 0, imported models) and those without a configuration, which custom
// programs may save.
void RunCheckpoints::compare_with(const CheckpointInfo& info, const DataLoader& loader, bool begins_as_before) const {
  if (info.step == 0 || info.config_text.empty()) return;
  const nlohmann::json data = info.progress.value("data", nlohmann::json::object());
  const auto number = [&](const char* key) {
    return data.is_object() && data.contains(key) ? count_in(data[key]) : std::nullopt;
  };
  const DataPlace place{.read = number("samples").value_or(0),
                        .samples_before = number("epoch_samples"),
                        .samples_now = loader.samples(),
                        .contents_before = contents_of(info, kContents),
                        .contents_now = contents_,
                        .begins_as_before = begins_as_before,
                        .tokenizer_before = contents_of(info, kTokenizer),
                        .tokenizer_now = tokenizer_contents_};
  std::vector<RunChange> moving;
  for (const auto& change : changes_between(Config::parse(info.config_text, info.path), config_, place)) {
    if (change.moves_samples && !config_.checkpoint.allow_changes)
      moving.push_back(change);
    else if (change.effect.empty() && world_.is_main())
      fmt::print("{}\n", describe({change}));
    else
      warn(fmt::format("{}: {}", describe({change}), change.effect));
  }
  if (!moving.empty())
    throw CheckpointError({info.path, describe(moving) + ": samples would be skipped or repeated",
                           "the data and the order that the checkpoint was made with",
                           "restore these keys, or set checkpoint.allow_changes: true"});
}

void RunCheckpoints::warn_of_rates(const CheckpointInfo& info) const {
  const auto& rates = config_.lr_schedule;
  const bool by_step = rates.name != "constant" || rates.warmup_steps > 0 || rates.warmup_ratio > 0;
  if (info.step > 0 && by_step && !info.progress.contains("learning_rate_index"))
    warn(
        "the checkpoint was made by a version whose learning rates were those of one step later; from here on, step k "
        "has the rate of PyTorch's schedulers at index k - 1");
}

void RunCheckpoints::warn_of_threads(const CheckpointInfo& info) const {
  if (info.step > 0 && info.threads_per_rank != at::get_num_threads())
    warn(fmt::format(
        "the checkpoint was made with {} threads per rank, but this run has {}: results may differ in their last bits",
        info.threads_per_rank, at::get_num_threads()));
}

bool RunCheckpoints::saves_at(std::int64_t step) const {
  const int every = config_.checkpoint.every;
  return every > 0 && step % every == 0;
}

nlohmann::json RunCheckpoints::data_progress(const DataLoader& loader) const {
  if (loader.reads_streams()) return gather_stream_places(loader, plugin_.mesh());
  return {{"samples", loader.position()},
          {"epoch_samples", loader.samples()},
          {kContents, to_json(contents_)},
          {kTokenizer, to_json(tokenizer_contents_)}};
}

bool RunCheckpoints::save(std::int64_t step, Boosted& boosted) {
  if (!writer_ || std::exchange(saved_step_, step) == step) return false;
  const auto& model_keys = config_.model.config_json;
  nlohmann::json progress = {{"learning_rate", boosted.optimizer->lr()},
                             {"learning_rate_index", step - 1},
                             {"data", data_progress(*boosted.loader)},
                             {"random", {{"seed", config_.train.seed}, {"step", step}}}};
  if (config_.data.started > 0) progress["started"] = config_.data.started;
  if (auto record = held_out_->state(); !record.is_null()) progress["held_out"] = std::move(record);
  const SaveRequest request{.directory = config_.checkpoint.path,
                            .step = step,
                            .config_text = config_.to_yaml(),
                            .model_config = nlohmann::json::parse(model_keys.empty() ? "{}" : model_keys),
                            .policy = config_.model.policy,
                            .model_directory = config_.model.path.empty() ? companions_ : config_.model.path,
                            .keep = config_.checkpoint.keep,
                            .stays = config_.checkpoint.keep_best ? held_out_->best_step() : std::nullopt,
                            .threads_per_rank = at::get_num_threads(),
                            .progress = std::move(progress),
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
