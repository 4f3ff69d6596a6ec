#include "gantry/booster/convert_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

#include "gantry/booster/recipe.h"
#include "gantry/checkpoint/format/catalog.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/stored_type.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/writer.h"
#include "gantry/core/error.h"
#include "gantry/core/file_system.h"
#include "gantry/models/model_family.h"

namespace gantry {
namespace {

// Reports the number of bytes written.
class ReportedFiles final : public FileSystem {
 public:
  explicit ReportedFiles(const std::function<void(std::uint64_t)>& written) : written_(written) {}
  ssize_t write(int file, const void* data, std::size_t bytes) override {
    const ssize_t done = FileSystem::write(file, data, bytes);
    if (done > 0 && written_) written_(static_cast<std::uint64_t>(done));
    return done;
  }

 private:
  const std::function<void(std::uint64_t)>& written_;
};

// Saves `boosted` as the only checkpoint of this job in the directory. Collective over the world.
std::string save_once(const SaveRequest& request, Boosted& boosted, HybridParallelPlugin& plugin,
                      const ConversionProgress& progress) {
  ReportedFiles files(progress.written);
  CheckpointWriter writer(request.directory, plugin.mesh(), {.files = &files});
  writer.save(request, plugin.state(boosted));
  return writer.last();
}

// Returns the configuration of the run that made the checkpoint, with `overrides`.
Config resharded_config(const Manifest& manifest, const std::string& folder,
                        const std::vector<std::string>& overrides) {
  const std::string made = nlohmann::json({{"model", {{"policy", manifest.policy}}}}).dump();
  Config config = Config::parse_written(manifest.config_text.empty() ? made : manifest.config_text, folder, overrides);
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
void refuse_another_model(const std::vector<std::string>& overrides) {
  for (const auto& text : overrides)
    if (text.starts_with("model.") || text.starts_with("model="))
      throw UsageError({"--set " + text, "the checkpoint defines the model", "keys of parallel, schedule or comm",
                        "leave out this --set"});
}

}  // namespace

Resharding prepare_resharding(const std::string& checkpoint, const std::vector<std::string>& overrides) {
  refuse_another_model(overrides);
  const TensorCatalog catalog = TensorCatalog::open(checkpoint);
  if (!catalog.manifest())
    throw CheckpointError({checkpoint, "the directory is not a checkpoint", "a step folder", "name a checkpoint"});
  auto manifest = std::make_shared<const Manifest>(*catalog.manifest());
  Config config = resharded_config(*manifest, catalog.path(), overrides);
  load_libraries(config);
  policies().at(manifest->policy);
  // The model is that of the checkpoint. The source of the run's initial weights does not matter, except for
  // parts of a model that are not in the checkpoint, which an export reads from this source.
  const auto& family = models::families().at(manifest->policy);
  config.model = {.policy = manifest->policy,
                  .path = family.other_parts.empty() ? "" : config.model.path,
                  .config_json = manifest->model_config.dump()};
  config.lora.path.clear();
  std::uint64_t bytes = 0;
  for (const auto& [key, tensor] : catalog.tensors()) bytes += tensor.bytes();
  const std::int64_t step = manifest->step;
  return {catalog.path(), std::move(config), std::move(manifest), step, bytes};
}

std::string reshard_checkpoint(World& world, const Resharding& resharding, const std::string& directory,
                               const ConversionProgress& progress) {
  const auto& [checkpoint, config, stored, step, bytes] = resharding;
  const Manifest& manifest = *stored;
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  const auto kinds = kinds_of(manifest);
  auto model = build_model(config);
  auto optimizer = kinds.size() > 1 ? build_optimizer(config, *model) : nullptr;
  auto boosted = booster.boost(model, optimizer);
  StateSource& state = plugin->state(boosted);
  refuse_losses(manifest, optimizer && !plugin->stages().stages().empty(), state, checkpoint);
  load_checkpoint(checkpoint, state, plugin->mesh(), progress.read);
  return save_once({.directory = directory,
                    .step = manifest.step,
                    .config_text = config.to_yaml(),
                    .model_config = manifest.model_config,
                    .policy = manifest.policy,
                    .model_directory = companion_directory(checkpoint, manifest),
                    .threads_per_rank = manifest.threads_per_rank,
                    .progress = manifest.progress,
                    .user = manifest.user},
                   boosted, *plugin, progress);
}

Config import_config(const std::string& model, const std::vector<std::string>& overrides) {
  const nlohmann::json keys = {{"model", {{"path", model}}}};
  Config config = Config::parse(keys.dump(), "import", overrides);
  load_libraries(config);
  return resolve_model(std::move(config));
}

ImportedModel import_model(World& world, const Config& config, const std::string& directory,
                           const ConversionProgress& progress) {
  auto* plugin = new HybridParallelPlugin(world, config);
  Booster booster{std::unique_ptr<Plugin>(plugin)};
  auto model = build_model(config);
  auto boosted = booster.boost(model);
  auto fresh = load_weights(config, boosted, plugin->mesh(), progress.read);
  const std::string made = save_once({.directory = directory,
                                      .step = 0,
                                      .config_text = config.to_yaml(),
                                      .model_config = nlohmann::json::parse(config.model.config_json),
                                      .policy = config.model.policy,
                                      .model_directory = config.model.path,
                                      .threads_per_rank = at::get_num_threads()},
                                     boosted, *plugin, progress);
  return {made, std::move(fresh)};
}

}  // namespace gantry
