#include "gantry/cli/config_command.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <unistd.h>

#include "gantry/cli/engine_exec.h"
#include "gantry/cli/output.h"
#include "gantry/core/config.h"
#include "gantry/core/mesh.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/core/schedule_choice.h"
#include "gantry/schedule/simulate.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Step {
  int samples, replica_samples, microbatches;
  long long tokens;
  schedule::Simulation simulation;

  int microbatch_samples() const { return (replica_samples + microbatches - 1) / microbatches; }  // of the largest
};

// All that a configuration says, and what follows from it.
struct Resolved {
  Config config;
  Mesh mesh;
  std::vector<LayerRange> stages;  // empty where nothing says the model's layers
  std::optional<Step> step;        // with data only
};

// Of the model's own keys, or of config.json in its directory; 0 if neither says.
int layers_of(const ModelConfig& model) {
  nlohmann::json keys = nlohmann::json::object();
  if (std::ifstream file(model.path + "/config.json"); !model.path.empty() && file)
    keys = nlohmann::json::parse(file, nullptr, false);
  if (!model.config_json.empty() && keys.is_object()) keys.update(nlohmann::json::parse(model.config_json));
  return layers_in(keys);
}

Step resolve_step(const Config& config, const Mesh& mesh) {
  const int samples = config.data.batch_size, replica_samples = samples / mesh.axis_size("dp");
  const int microbatches =
      microbatch_count(config.schedule, config.parallel.pipeline * config.schedule.chunks, replica_samples);
  return {.samples = samples,
          .replica_samples = replica_samples,
          .microbatches = microbatches,
          .tokens = static_cast<long long>(samples) * config.data.sequence_length,
          .simulation = schedule::simulate(schedule::generate(config.schedule.name, config.parallel.pipeline,
                                                              microbatches, config.schedule.chunks))};
}

Resolved resolve(const std::string& path, const std::vector<std::string>& sets) {
  Config config = Config::load(path, sets);
  const auto& parallel = config.parallel;
  Mesh mesh = Mesh::hybrid(config.ranks(), parallel.pipeline, parallel.data, parallel.tensor, parallel.order);
  std::vector<LayerRange> ranges;
  const int stages = parallel.pipeline * config.schedule.chunks;
  if (const int layers = layers_of(config.model); layers > 0)
    ranges = layer_ranges(layers_per_stage(config.schedule, layers, stages), layers, stages);
  std::optional<Step> step;
  if (!config.data.format.empty()) step = resolve_step(config, mesh);
  return {std::move(config), std::move(mesh), std::move(ranges), std::move(step)};
}

std::string mesh_text(const Mesh& mesh) {
  constexpr int kMostRanks = 64;
  std::string text = fmt::format("\nmesh: {}\n", mesh.describe());
  for (int rank = 0; rank < std::min(mesh.size(), kMostRanks); ++rank)
    text += fmt::format("  {}\n", mesh.describe_rank(rank));
  if (mesh.size() > kMostRanks) text += fmt::format("  ... {} more\n", mesh.size() - kMostRanks);
  return text;
}

std::string stages_text(const std::vector<LayerRange>& stages) {
  if (stages.empty()) return "";
  std::string text = fmt::format("\nstages of {} layers:\n", stages.back().end);
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto& [begin, end] = stages[stage];
    text += begin == end ? fmt::format("  stage {}: no layers\n", stage)
                         : fmt::format("  stage {}: layers {} to {} ({})\n", stage, begin, end - 1, end - begin);
  }
  return text;
}

std::string step_text(const std::optional<Step>& step) {
  if (!step) return "";
  return fmt::format("\na step: {} samples ({} tokens), {} a replica, {} microbatches of up to {}\n", step->samples,
                     step->tokens, step->replica_samples, step->microbatches, step->microbatch_samples()) +
         fmt::format("predicted bubble: {:.1f}% with equal stages\n", 100 * step->simulation.bubble_rate);
}

Json mesh_json(const Mesh& mesh) {
  Json axes = Json::array(), ranks = Json::array();
  for (const auto& [name, size] : mesh.axes()) axes.push_back({{"name", name}, {"size", size}});
  for (int rank = 0; rank < mesh.size(); ++rank) {
    Json entry = {{"rank", rank}};
    const auto place = mesh.coordinates(rank);
    for (std::size_t i = 0; i < place.size(); ++i) entry[mesh.axes()[i].name] = place[i];
    ranks.push_back(std::move(entry));
  }
  return {{"size", mesh.size()}, {"axes", axes}, {"ranks", ranks}};
}

Json stages_json(const std::vector<LayerRange>& stages, const Config& config) {
  const PipelineStageManager manager(0, config.parallel.pipeline, config.schedule.chunks);
  Json all = Json::array();
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage)
    all.push_back({{"stage", stage},
                   {"pipeline_rank", manager.rank_of(stage)},
                   {"first_layer", stages[stage].begin},
                   {"layers", stages[stage].size()}});
  return all;
}

Json step_json(const Step& step) {
  return {{"global_batch", step.samples},
          {"tokens", step.tokens},
          {"replica_batch", step.replica_samples},
          {"microbatches", step.microbatches},
          {"largest_microbatch", step.microbatch_samples()},
          {"bubble_rate", step.simulation.bubble_rate},
          {"peak_activations", step.simulation.peak_activations}};
}

std::string to_json(const Resolved& resolved) {
  Json all = {{"config", Json::parse(resolved.config.to_json())}, {"mesh", mesh_json(resolved.mesh)}};
  if (!resolved.stages.empty()) all["stages"] = stages_json(resolved.stages, resolved.config);
  if (resolved.step) all["step"] = step_json(*resolved.step);
  return all.dump(2) + "\n";
}

}  // namespace

void show_config(const std::string& path, const std::vector<std::string>& sets, bool json) {
  const Resolved resolved = resolve(path, sets);
  print_output(json ? to_json(resolved)
                    : resolved.config.to_yaml() + mesh_text(resolved.mesh) + stages_text(resolved.stages) +
                          step_text(resolved.step));
}

void show_doctor() {
  const double gigabytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 1e9;
  print_output(fmt::format("gantry {}\ncores: {}\nmemory: {:.1f} GB\nengine: {}\nbackends: {}\n", GANTRY_VERSION,
                           std::thread::hardware_concurrency(), gigabytes, engine_path(), GANTRY_BACKENDS));
}

}  // namespace gantry::cli
