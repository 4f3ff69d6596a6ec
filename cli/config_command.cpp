#include "gantry/cli/config_command.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "gantry/cli/context_text.h"
#include "gantry/cli/expert_text.h"
#include "gantry/cli/recompute_text.h"
#include "gantry/core/config.h"
#include "gantry/core/config/teacher_layout.h"
#include "gantry/core/io/output.h"
#include "gantry/core/mesh.h"
#include "gantry/models/described/family_reader.h"
#include "gantry/models/described/work_of_keys.h"
#include "gantry/planner/parameters.h"
#include "gantry/planner/plan.h"
#include "gantry/planner/resolved_config.h"

namespace gantry::cli {
namespace {

using Json = nlohmann::ordered_json;
using planner::ResolvedConfig;
using planner::ResolvedStep;

constexpr int kMostRanks = 64;  // printed as text; JSON has all ranks

// Loads the configuration. Keys with the value auto are chosen for all devices of the cluster, and a line of text
// reports the choice.
planner::PlannedConfig read_config(const std::string& path, const std::vector<std::string>& sets,
                                   const std::string& cluster) {
  const auto open = planner::auto_keys(path, sets);
  // schedule.recompute needs no cluster if schedule.memory_limit is set. Config::load() reports a missing limit.
  const bool asks_for_cluster = !open.empty() && open != std::set<std::string>{"schedule.recompute"};
  if (asks_for_cluster && cluster.empty()) planner::refuse_without_cluster("gantry config", open);
  if (!open.empty() && !cluster.empty())
    return planner::planned_config(path, sets, planner::read_auto_request(path, sets), planner::load_cluster(cluster));
  planner::PlannedConfig read{.config = Config::load(path, sets), .text = ""};
  if (!cluster.empty()) read.text = planner::estimate_line(read.config, cluster);
  return read;
}

std::string view_text(const char* title, const Mesh& mesh, axis::View view) {
  std::string text = fmt::format("\n{}: {}\n", title, mesh.describe(view));
  for (int rank = 0; rank < std::min(mesh.size(), kMostRanks); ++rank)
    text += fmt::format("  {}\n", mesh.describe_rank(rank, view));
  if (mesh.size() > kMostRanks) text += fmt::format("  ... {} more\n", mesh.size() - kMostRanks);
  return text;
}

std::string mesh_text(const Mesh& mesh) {
  const bool has_experts = mesh.has_expert_view();
  return view_text("mesh", mesh, axis::View::kDense) +
         (has_experts ? view_text("the same ranks by the placement of experts", mesh, axis::View::kExpert) : "");
}

std::string teacher_text(const ResolvedConfig& resolved) {
  const auto mesh = teacher_mesh(resolved.config, resolved.mesh.size());
  return mesh ? view_text("mesh of the teacher", *mesh, axis::View::kDense) : "";
}

// The number of layers of a stage that are of the image encoder.
int tower_layers(const ResolvedConfig& resolved, std::size_t stage) {
  const auto& [begin, end] = resolved.layers[stage];
  return std::max(0, std::min(end, resolved.tower_layers) - begin);
}

std::string stages_text(const ResolvedConfig& resolved) {
  const auto& [layers, work] = std::tie(resolved.layers, resolved.work);
  if (layers.empty()) return "";
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  const int tower = resolved.tower_layers;
  std::string text = fmt::format("\nstages of {} layers", layers.back().end);
  text += tower > 0 ? fmt::format(", of which {} of the image encoder:\n", tower) : ":\n";
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    const auto& [begin, end] = layers[stage];
    text += begin == end ? fmt::format("  stage {}: no layers", stage)
                         : fmt::format("  stage {}: layers {} to {} ({})", stage, begin, end - 1, end - begin);
    if (const int of_encoder = tower_layers(resolved, stage); of_encoder > 0)
      text += fmt::format(", {} to {} of the image encoder", begin, begin + of_encoder - 1);
    text += work.empty() ? "\n" : fmt::format(", {:.1f}% of the work\n", 100 * work[stage] / total);
  }
  if (layers.size() > 1 && !work.empty())
    text += fmt::format("  evenness: {:.1f}% (mean work of a rank / work of the heaviest rank)\n",
                        100 * evenness(work_of_ranks(work, planner::ranks_of_stages(resolved.stages))));
  return text;
}

std::string step_text(const std::optional<ResolvedStep>& step) {
  if (!step) return "";
  return fmt::format("\nper step: {} samples ({} tokens), {} per replica, {} microbatches of up to {}\n", step->samples,
                     step->tokens, step->replica_samples, step->microbatches, step->microbatch_samples()) +
         fmt::format("predicted bubble: {:.1f}% with equal stages\n", 100 * step->simulation.bubble_rate) +
         (step->weighed ? fmt::format("  {:.1f}% with these stages: the imbalance makes the step {:.1f}% longer\n",
                                      100 * step->weighed->bubble_rate, 100 * step->imbalance())
                        : "");
}

Json view_json(const Mesh& mesh, axis::View view) {
  Json axes = Json::array(), ranks = Json::array();
  for (const auto& [name, size] : mesh.axes(view)) axes.push_back({{"name", name}, {"size", size}});
  for (int rank = 0; rank < mesh.size(); ++rank) {
    Json entry = {{"rank", rank}};
    for (const auto& axis : mesh.axes(view)) entry[axis.name] = mesh.coordinate(rank, axis.name);
    ranks.push_back(std::move(entry));
  }
  return {{"size", mesh.size()}, {"axes", axes}, {"ranks", ranks}};
}

Json mesh_json(const Mesh& mesh) {
  Json dense = view_json(mesh, axis::View::kDense);
  if (mesh.has_expert_view()) dense["experts"] = view_json(mesh, axis::View::kExpert);
  return dense;
}

Json stages_json(const ResolvedConfig& resolved) {
  const auto& [stages, layers, work] = std::tie(resolved.stages, resolved.layers, resolved.work);
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  Json all = Json::array();
  for (int stage = 0; stage < stages.num_stages(); ++stage) {
    Json entry = {{"stage", stage}, {"pipeline_rank", stages.rank_of(stage)}};
    if (!layers.empty()) entry.update({{"first_layer", layers[stage].begin}, {"layers", layers[stage].size()}});
    if (resolved.tower_layers > 0) entry["image_encoder_layers"] = tower_layers(resolved, stage);
    if (!work.empty()) entry["work"] = work[stage] / total;
    all.push_back(std::move(entry));
  }
  return all;
}

Json step_json(const ResolvedStep& step) {
  Json all = {{"global_batch", step.samples},
              {"tokens", step.tokens},
              {"replica_batch", step.replica_samples},
              {"microbatches", step.microbatches},
              {"largest_microbatch", step.microbatch_samples()},
              {"bubble_rate", step.simulation.bubble_rate},
              {"peak_activations", step.simulation.peak_activations}};
  if (step.weighed) all.update({{"weighed_bubble_rate", step.weighed->bubble_rate}, {"imbalance", step.imbalance()}});
  return all;
}

std::string to_json(const ResolvedConfig& resolved, const std::string& plan) {
  Json all = {{"config", Json::parse(resolved.config.to_json())},
              {"mesh", mesh_json(resolved.mesh)},
              {"stages", stages_json(resolved)}};
  if (const auto mesh = teacher_mesh(resolved.config, resolved.mesh.size())) all["teacher_mesh"] = mesh_json(*mesh);
  if (!plan.empty()) all["plan"] = plan.substr(0, plan.find('\n'));
  if (resolved.step) all["step"] = step_json(*resolved.step);
  if (resolved.context) all["context"] = cli::to_json(*resolved.context);
  if (resolved.experts) all["experts"] = cli::to_json(*resolved.experts);
  if (resolved.recompute) all["recompute"] = cli::to_json(*resolved.recompute);
  return all.dump(2) + "\n";
}

}  // namespace

namespace {

// Throws ConfigError if parameters cannot be sharded over the ranks.
void check_shards(const Config& config) {
  if (const auto spec = models::described_decoder(models::keys_of_model(config.model), config.model.policy))
    planner::held_parameters(*spec, config.parallel.tensor, config.parallel.expert);
}

// Checks the keys of the model. Families in libraries are not known here.
void check_model(const Config& config) {
  const nlohmann::json keys = models::keys_of_model(config.model);
  if (!keys.is_object()) return;
  const nlohmann::json type = keys.value("model_type", nlohmann::json(""));
  if (!config.libraries.empty() || !type.is_string()) return;
  const std::string name = config.model.policy.empty() ? type.get<std::string>() : config.model.policy;
  if (name.empty()) return;
  const auto* family = models::find_family_reader(name);
  const std::string file = config.model.path + "/config.json";
  if (!family && config.model.policy.empty()) {
    std::vector<std::string> known;
    for (const auto& one : models::family_readers()) known.push_back(one.model_type);
    models::refuse_model_type(file, name, known);
  }
  if (!family) return;
  const nlohmann::json in_file = models::keys_of_model({.policy = "", .path = config.model.path});
  const std::string warning = models::judge_before_values(
      [&](const nlohmann::json& checked) { return models::check_keys(*family, checked); }, keys,
      [&](const models::CheckedKeys& checked) {
        return models::judge_unknown_keys(checked, name, config.model.unknown_keys, in_file, file);
      });
  if (!warning.empty()) fmt::print(stderr, "warning: {}\n", warning);
}

}  // namespace

void add_config_command(CLI::App& app, const Prepare& prepare) {
  struct Arguments {
    std::string config, cluster;
    std::vector<std::string> sets;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  auto* config = app.add_subcommand("config", "Show the resolved configuration, its mesh, stages and derived values");
  config->add_option("config", arguments->config, "The configuration, a YAML file")->required();
  add_sets(*config, arguments->sets);
  config
      ->add_option(
          "--cluster", arguments->cluster,
          "A cluster, as in `gantry plan`: keys with the value auto are chosen for it, and the step time is estimated")
      ->type_name("NAME");
  config->add_flag("--json", arguments->json, "Print JSON");
  config->callback([arguments, prepare] {
    prepare(arguments->config, arguments->sets);
    show_config(arguments->config, arguments->sets, arguments->cluster, arguments->json);
  });
}

void show_config(const std::string& path, const std::vector<std::string>& sets, const std::string& cluster, bool json) {
  planner::PlannedConfig read = read_config(path, sets, cluster);
  check_model(read.config);
  const ResolvedConfig resolved = planner::resolve_config(std::move(read.config));
  check_shards(resolved.config);
  print_output(json ? to_json(resolved, read.text)
                    : resolved.config.to_yaml() + (read.text.empty() ? "" : "\n" + read.text) +
                          mesh_text(resolved.mesh) + teacher_text(resolved) + stages_text(resolved) +
                          step_text(resolved.step) + to_text(resolved.context) + to_text(resolved.experts) +
                          (resolved.recompute ? cli::to_text(*resolved.recompute, resolved.layers) : ""));
}

}  // namespace gantry::cli
