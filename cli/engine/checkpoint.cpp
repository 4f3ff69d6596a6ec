#include "gantry/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/adapter.h"
#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/find.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/stored_form.h"
#include "gantry/checkpoint/format/stored_type.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/parallelized.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/upcycle.h"
#include "gantry/checkpoint/writer.h"
#include "gantry/cli/engine/commands.h"
#include "gantry/cli/engine/trained_model.h"
#include "gantry/cli/progress_bar.h"
#include "gantry/cli/warnings.h"
#include "gantry/core/error.h"
#include "gantry/core/output.h"
#include "gantry/launch/launch.h"
#include "gantry/models/model_family.h"

namespace gantry::cli {
namespace {

using nlohmann::json;

// A progress bar that several rank threads advance at the same time.
class SharedBar {
 public:
  SharedBar(const char* label, std::uint64_t all) : all_(all) { bar_.emplace(label); }
  void add(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ = std::min(done_ + bytes, all_);
    if (bar_) bar_->show(done_, all_);
  }
  void end() {
    const std::lock_guard lock(mutex_);
    bar_.reset();
  }

 private:
  std::mutex mutex_;
  std::optional<ProgressBar> bar_;
  std::uint64_t all_, done_ = 0;
};

// Clears the bar when a rank has finished or failed, before other output is printed.
class BarEnd {
 public:
  explicit BarEnd(SharedBar& bar) : bar_(bar) {}
  ~BarEnd() { bar_.end(); }
  BarEnd(const BarEnd&) = delete;
  BarEnd& operator=(const BarEnd&) = delete;

 private:
  SharedBar& bar_;
};

// Shows the number of bytes written.
class ShownFiles final : public FileSystem {
 public:
  explicit ShownFiles(std::uint64_t all) : bar_("writing", all) {}
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    const ssize_t written = FileSystem::write(file, data, bytes);
    if (written > 0) bar_.add(static_cast<std::uint64_t>(written));
    return written;
  }
  SharedBar& bar() { return bar_; }

 private:
  SharedBar bar_;
};

std::uint64_t bytes_in(const TensorCatalog& catalog) {
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : catalog.tensors()) bytes += tensor.bytes();
  return bytes;
}

// `step`: the step of a checkpoint; empty for other directories.
void report(bool as_json, const std::string& done, const std::string& from, std::optional<std::int64_t> step,
            const std::string& to) {
  json facts = {{"from", from}, {"to", to}};
  if (step) facts["step"] = *step;
  if (as_json)
    print_output(facts.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  else
    print_output(fmt::format("{} {}{} to {}\n", done, from, step ? fmt::format(" (step {})", *step) : "", to));
}

// Saves `boosted` as the only checkpoint of this job in the directory. Collective over the world.
std::string save_once(SaveRequest request, Boosted& boosted, HybridParallelPlugin& plugin, FileSystem& files) {
  CheckpointWriter writer(request.directory, plugin.mesh(), {.files = &files});
  writer.save(request, plugin.state(boosted));
  return writer.last();
}

// Returns the configuration of the run that made the checkpoint, with the overrides `sets`.
Config config_for(const Manifest& manifest, const std::string& folder, const std::vector<std::string>& sets) {
  const std::string made = json({{"model", {{"policy", manifest.policy}}}}).dump();
  Config config = Config::parse_written(manifest.config_text.empty() ? made : manifest.config_text, folder, sets);
  config.comm.backend = "auto";
  return config;
}

std::set<std::string> kinds_of(const Manifest& manifest) {
  std::set<std::string> kinds;
  for (const auto& [key, tensor] : manifest.tensors) kinds.insert(tensor.kind);
  return kinds;
}

// Throws ConfigError if the new checkpoint would lose tensors of the old one, or would store them with another type.
void refuse_losses(const Manifest& manifest, bool all_kinds, StateSource& state, const std::string& folder) {
  const char* expected = "the optimizer and precision of the run that saved it";
  const char* remedy =
      "leave out --set of optimizer and precision, or set the saved values; to change the type of weights use export "
      "--dtype";
  std::set<std::string> lost = all_kinds ? kinds_of(manifest) : std::set<std::string>();
  for (const auto& entry : state.state_entries()) {
    lost.erase(entry.kind);
    const auto stored = manifest.tensors.find(entry.kind + "/" + entry.held.placement.name);
    const StoredType& type = stored_type_of(entry.held.tensor.scalar_type());
    if (stored != manifest.tensors.end() && stored->second.type != &type)
      throw ConfigError({folder,
                         fmt::format("the checkpoint has {} as {}, which would be {} in this configuration",
                                     stored->first, stored->second.type->readable, type.readable),
                         expected, remedy});
  }
  if (!lost.empty())
    throw ConfigError({folder,
                       fmt::format("the checkpoint has {}, which this configuration lacks", fmt::join(lost, ", ")),
                       expected, remedy});
}

// Resharding changes only the layout.
void refuse_another_model(const std::vector<std::string>& sets) {
  for (const auto& set : sets)
    if (set.starts_with("model.") || set.starts_with("model="))
      throw UsageError({"--set " + set, "the checkpoint defines the model", "keys of parallel, schedule or comm",
                        "leave out this --set"});
}

// Returns the directory that was written.
std::string reshard_rank(World& world, const Config& config, const Manifest& manifest, const std::string& folder,
                         const CheckpointReshardArguments& arguments, SharedBar& reading, ShownFiles& files) {
  const BarEnd reading_end(reading), writing_end(files.bar());
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  const auto kinds = kinds_of(manifest);
  auto model = build_model(config);
  auto optimizer = kinds.size() > 1 ? build_optimizer(config, *model) : nullptr;
  auto boosted = booster.boost(model, optimizer);
  StateSource& state = plugin->state(boosted);
  refuse_losses(manifest, optimizer && !plugin->stages().stages().empty(), state, folder);
  load_checkpoint(folder, state, plugin->mesh(), [&](std::uint64_t bytes) { reading.add(bytes); });
  return save_once({.directory = arguments.output,
                    .step = manifest.step,
                    .config_text = config.to_yaml(),
                    .model_config = manifest.model_config,
                    .policy = manifest.policy,
                    .threads_per_rank = manifest.threads_per_rank,
                    .progress = manifest.progress,
                    .user = manifest.user},
                   boosted, *plugin, files);
}

// Returns the form of the source. Throws InputError if it is neither a checkpoint nor a directory of save_parallelized,
// and UsageError if the output directory has checkpoints, which the exported model would hide.
StoredForm require_exportable(const CheckpointExportArguments& arguments) {
  if (holds_checkpoints(arguments.output))
    throw UsageError({arguments.output, "the directory has checkpoints in it",
                      "a directory for the exported model alone", "choose another directory"});
  const StoredForm form = stored_form(arguments.checkpoint);
  if (form == StoredForm::kHuggingFace)
    find_model_files(arguments.checkpoint);  // throws if its weights are in an unsupported format
  if (form == StoredForm::kHuggingFace || form == StoredForm::kFile)
    throw InputError({arguments.checkpoint, "the model is already in Hugging Face format",
                      "a checkpoint, or a directory of save_parallelized", ""});
  return form;
}

std::string import_rank(World& world, const Config& config, const CheckpointImportArguments& arguments,
                        SharedBar& reading, ShownFiles& files) {
  const BarEnd reading_end(reading), writing_end(files.bar());
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  auto model = build_model(config);
  auto boosted = booster.boost(model);
  const auto fresh = load_weights(config, boosted, plugin->mesh(), [&](std::uint64_t bytes) { reading.add(bytes); });
  if (world.is_main() && !fresh.empty())
    fmt::print(stderr, "warning: new in this model, with initial weights: {}\n", fmt::join(fresh, ", "));
  return save_once({.directory = arguments.output,
                    .step = 0,
                    .config_text = config.to_yaml(),
                    .model_config = json::parse(config.model.config_json),
                    .policy = config.model.policy,
                    .threads_per_rank = at::get_num_threads()},
                   boosted, *plugin, files);
}

}  // namespace

int run_checkpoint_export(const CheckpointExportArguments& arguments) {
  ExportOptions options;
  if (!arguments.dtype.empty()) options.type = dtype_of(arguments.dtype);
  options.most_shard_bytes = static_cast<std::uint64_t>(arguments.most_shard_gb * 1e9);
  const bool parallelized = require_exportable(arguments) == StoredForm::kParallelized;
  const std::string from =
      parallelized ? arguments.checkpoint : require_checkpoint(arguments.checkpoint, warn_of_passed_over);
  load_named_libraries(arguments.libraries, parallelized ? "" : read_checkpoint_info(from).config_text, from);
  {
    ProgressBar bar("exporting");
    options.progress = bar.function();
    if (parallelized)
      merge_parallelized(from, arguments.output, options);
    else if (holds_adapters(from))
      export_adapter(from, arguments.output, options);
    else
      export_checkpoint(from, arguments.output, options);
  }
  if (!parallelized) {
    report(arguments.json, "exported", from, read_checkpoint_info(from).step, arguments.output);
  } else {
    report(arguments.json, "merged", from, std::nullopt, arguments.output);
  }
  return 0;
}

int run_checkpoint_merge(const CheckpointMergeArguments& arguments) {
  if (holds_checkpoints(arguments.output))
    throw UsageError({arguments.output, "the directory has checkpoints in it", "a directory for the merged model alone",
                      "choose another directory"});
  ExportOptions options;
  if (!arguments.dtype.empty()) options.type = dtype_of(arguments.dtype);
  options.most_shard_bytes = static_cast<std::uint64_t>(arguments.most_shard_gb * 1e9);
  const bool is_directory = is_adapter_directory(arguments.checkpoint);
  const std::string from =
      is_directory ? arguments.checkpoint : require_checkpoint(arguments.checkpoint, warn_of_passed_over);
  load_named_libraries(arguments.libraries, is_directory ? "" : read_checkpoint_info(from).config_text, from);
  {
    ProgressBar bar("merging");
    options.progress = bar.function();
    merge_adapter(from, arguments.model, arguments.output, options);
  }
  if (!is_directory) {
    report(arguments.json, "merged", from, read_checkpoint_info(from).step, arguments.output);
  } else {
    report(arguments.json, "merged", from, std::nullopt, arguments.output);
  }
  return 0;
}

int run_checkpoint_upcycle(const CheckpointUpcycleArguments& arguments) {
  if (holds_checkpoints(arguments.output))
    throw UsageError({arguments.output, "the directory has checkpoints in it",
                      "a directory for the model with experts alone", "choose another directory"});
  ExportOptions options;
  if (!arguments.dtype.empty()) options.type = dtype_of(arguments.dtype);
  options.most_shard_bytes = static_cast<std::uint64_t>(arguments.most_shard_gb * 1e9);
  const bool is_directory = stored_form(arguments.dense) == StoredForm::kHuggingFace;
  const std::string from = is_directory ? arguments.dense : require_checkpoint(arguments.dense, warn_of_passed_over);
  {
    ProgressBar bar("upcycling");
    options.progress = bar.function();
    upcycle(from, arguments.output,
            {.experts = arguments.experts,
             .used = arguments.used,
             .granularity = arguments.granularity,
             .seed = arguments.seed},
            options);
  }
  if (is_directory) {
    report(arguments.json, "upcycled", from, std::nullopt, arguments.output);
  } else {
    report(arguments.json, "upcycled", from, read_checkpoint_info(from).step, arguments.output);
  }
  return 0;
}

int run_checkpoint_import(const CheckpointImportArguments& arguments) {
  const json model = {{"model", {{"path", arguments.model}}}};
  Config config = Config::parse(model.dump(), "import", arguments.sets);
  load_libraries(config);
  config = resolve_model(std::move(config));
  const std::uint64_t bytes = bytes_in(TensorCatalog::open(arguments.model));
  SharedBar reading("reading", bytes);
  ShownFiles files(bytes);
  return launch(config, [&](World& world) {
    const std::string made = import_rank(world, config, arguments, reading, files);
    if (world.is_main()) report(arguments.json, "imported", arguments.model, 0, made);
  });
}

int run_checkpoint_reshard(const CheckpointReshardArguments& arguments) {
  refuse_another_model(arguments.sets);
  const std::string folder = require_checkpoint(arguments.checkpoint, warn_of_passed_over);
  const TensorCatalog catalog = TensorCatalog::open(folder);
  const Manifest& manifest = *catalog.manifest();
  Config config = config_for(manifest, folder, arguments.sets);
  load_libraries(config);
  // The model is that of the checkpoint. The source of the run's initial weights does not matter.
  config.model = {.policy = manifest.policy, .path = "", .config_json = manifest.model_config.dump()};
  config.lora.path.clear();
  policies().at(manifest.policy);
  models::families().at(manifest.policy);
  SharedBar reading("reading", bytes_in(catalog));
  ShownFiles files(bytes_in(catalog));
  return launch(config, [&](World& world) {
    const std::string made = reshard_rank(world, config, manifest, folder, arguments, reading, files);
    if (world.is_main()) report(arguments.json, "resharded", folder, manifest.step, made);
  });
}

}  // namespace gantry::cli
