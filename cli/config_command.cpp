#include "gantry/cli/config_command.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

#include "gantry/cli/engine_exec.h"
#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/core/mesh.h"
#include "gantry/core/pipeline_stage_manager.h"
#include "gantry/core/schedule_names.h"
#include "gantry/schedule/simulate.h"

namespace gantry::cli {
namespace {

// Of the model's own keys, or of config.json in its directory; 0 if neither says.
int layers_of(const ModelConfig& model) {
  nlohmann::json keys = nlohmann::json::object();
  if (std::ifstream file(model.path + "/config.json"); !model.path.empty() && file)
    keys = nlohmann::json::parse(file, nullptr, false);
  if (!model.config_json.empty() && keys.is_object()) keys.update(nlohmann::json::parse(model.config_json));
  for (const char* name : {"n_layer", "num_hidden_layers"})
    if (keys.is_object() && keys.contains(name) && keys[name].is_number_integer()) return keys[name].get<int>();
  return 0;
}

std::vector<int> layers_per_stage(const ScheduleConfig& schedule, int layers, int stages) {
  if (const auto* list = std::get_if<std::vector<int>>(&schedule.layers)) return *list;
  const auto& name = std::get<std::string>(schedule.layers);
  if (name == "default") return distribute_layers(layers, stages);
  return name == "balanced" ? distribute_layers_balanced(layers, stages, 0.1, 1.0) : parse_layout_string(name);
}

void show_mesh(const Mesh& mesh) {
  fmt::print("\nmesh: {}\n", mesh.describe());
  for (int rank = 0; rank < std::min(mesh.size(), 64); ++rank) fmt::print("  {}\n", mesh.describe_rank(rank));
  if (mesh.size() > 64) fmt::print("  ... {} more\n", mesh.size() - 64);
}

void show_stages(const Config& config) {
  const int layers = layers_of(config.model), stages = config.parallel.pipeline * chunks_of(config.schedule);
  if (layers == 0) return;
  fmt::print("\nstages of {} layers:\n", layers);
  const auto ranges = layer_ranges(layers_per_stage(config.schedule, layers, stages), layers, stages);
  for (std::size_t stage = 0; stage < ranges.size(); ++stage)
    fmt::print("  stage {}: layers {} to {} ({})\n", stage, ranges[stage].begin, ranges[stage].end - 1,
               ranges[stage].size());
}

void show_step(const Config& config, const Mesh& mesh) {
  if (config.data.format.empty()) return;
  const int samples = config.data.batch_size / mesh.axis_size("dp"), pipeline = config.parallel.pipeline;
  int microbatches = pipeline > 1 ? 2 * pipeline : 1;
  if (config.schedule.microbatches) microbatches = *config.schedule.microbatches;
  if (config.schedule.microbatch_size)
    microbatches = (samples + *config.schedule.microbatch_size - 1) / *config.schedule.microbatch_size;
  microbatches = std::clamp(microbatches, 1, samples);
  const auto simulation =
      schedule::simulate(schedule::generate(config.schedule.name, pipeline, microbatches, chunks_of(config.schedule)));
  fmt::print("\na step: {} samples ({} tokens), {} a replica, {} microbatches of up to {}\n", config.data.batch_size,
             static_cast<long long>(config.data.batch_size) * config.data.sequence_length, samples, microbatches,
             (samples + microbatches - 1) / microbatches);
  fmt::print("predicted bubble: {:.1f}% with equal stages\n", 100 * simulation.bubble_rate);
}

}  // namespace

void show_config(const std::string& path, const std::vector<std::string>& sets) {
  const Config config = Config::load(path, sets);
  const Mesh mesh = Mesh::hybrid(config.ranks(), config.parallel.pipeline, config.parallel.data, config.parallel.tensor,
                                 config.parallel.order);
  fmt::print("{}", config.to_yaml());
  show_mesh(mesh);
  show_stages(config);
  show_step(config, mesh);
}

void show_doctor() {
  fmt::print("gantry {}\n", GANTRY_VERSION);
  fmt::print("cores: {}\n", std::thread::hardware_concurrency());
  const double gigabytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE)) / 1e9;
  fmt::print("memory: {:.1f} GB\n", gigabytes);
  fmt::print("engine: {}\n", engine_path());
  fmt::print("backends: {}\n", GANTRY_BACKENDS);
}

}  // namespace gantry::cli
