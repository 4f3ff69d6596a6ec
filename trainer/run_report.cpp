#include "gantry/trainer/run_report.h"

#include <algorithm>
#include <array>
#include <exception>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "gantry/checkpoint/disk_work.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/core/host/usable_cores.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/sharding/zero_level.h"
#include "gantry/core/version.h"
#include "gantry/planner/layout.h"
#include "gantry/schedule/stages/measured_work.h"
#include "gantry/trainer/planned_step.h"
#include "gantry/trainer/report/run_reader.h"

namespace gantry {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t held_parameters(Boosted& boosted) {
  std::set<const void*> seen;  // tied parameters count once
  std::int64_t count = 0;
  for (const auto& parameter : boosted.model->module().parameters())
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  return count;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "unknown";
}

Json environment(World& world) {
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return {{"gantry", GANTRY_VERSION},
          {"libtorch", TORCH_VERSION},
          {"compiler", "g++ " __VERSION__},
          {"backend", world.backend().name()},
          {"host", host_name()},
          {"processor", processor()},
          {"cores", usable_cores()},
          {"memory", fmt::format("{:.1f} GB", memory / 1e9)},
          {"threads_per_rank", at::get_num_threads()}};
}

Json mesh_of(const Mesh& mesh) {
  Json axes = Json::array(), ranks = Json::array();
  for (const auto& [name, size] : mesh.axes()) axes.push_back({{"name", name}, {"size", size}});
  for (int rank = 0; rank < mesh.size(); ++rank) {
    Json place = {{"rank", rank}};
    for (const auto& axis : mesh.axes()) place[axis.name] = mesh.coordinate(rank, axis.name);
    ranks.push_back(std::move(place));
  }
  return {{"axes", std::move(axes)}, {"ranks", std::move(ranks)}};
}

Json stages_of(const PipelineStageManager& manager, Boosted& boosted) {
  const auto& ranges = boosted.model->stage_module_unmaterialized().layer_ranges();
  Json stages = Json::array();
  for (int stage = 0; stage < manager.num_stages(); ++stage)
    stages.push_back({{"stage", stage},
                      {"pipeline_rank", manager.rank_of(stage)},
                      {"first_layer", ranges[stage].begin},
                      {"layers", ranges[stage].size()}});
  return stages;
}

Json timeline_of(const schedule::Simulation& simulation) {
  Json ranks = Json::array();
  for (const auto& lane : simulation.timeline) {
    Json row = Json::array();
    for (const auto& [action, start, end] : lane)
      row.push_back({to_string(action.kind), action.stage, action.microbatch, start, end});
    ranks.push_back(std::move(row));
  }
  return {{"bubble", simulation.bubble_rate}, {"makespan", simulation.makespan_global}, {"ranks", std::move(ranks)}};
}

bool is_measured(const LayerWork& layers) {
  return std::any_of(layers.layers.begin(), layers.layers.end(), [](double time) { return time > 0; });
}

// Returns the mean of the ranks' counts over all ranks and steps.
Json communication_of(ProcessGroup& world, const RunFacts& facts) {
  Json mine = Json::array();
  for (const auto& count : facts.counts)
    mine.push_back({count.axis, count.operation, count.calls, count.bytes, count.seconds});
  std::map<std::pair<std::string, std::string>, std::array<double, 3>> sums;
  for (const auto& text : gather_texts(world, mine.dump()))
    for (const auto& row : Json::parse(text))
      for (int i = 0; i < 3; ++i)
        sums[{row[0].get<std::string>(), row[1].get<std::string>()}][i] += row[2 + i].get<double>();
  Json all = Json::array();
  const double shares = static_cast<double>(world.size()) * static_cast<double>(facts.counted_steps);
  for (const auto& [key, sum] : sums)
    all.push_back({{"axis", key.first},
                   {"operation", key.second},
                   {"calls_per_step", sum[0] / shares},
                   {"bytes_per_step", sum[1] / shares},
                   {"seconds_per_step", sum[2] / shares}});
  return all;
}

Json operators_of(const std::vector<OperatorCost>& costs) {
  Json all = Json::array();
  for (const auto& cost : costs)
    all.push_back({{"name", cost.name},
                   {"calls", cost.calls},
                   {"own_seconds", cost.own},
                   {"total_seconds", cost.total},
                   {"memory_bytes", cost.memory},
                   {"shapes", cost.shapes}});
  return all;
}

Json memory_of(const std::vector<std::int64_t>& parameters, double bytes_per_parameter) {
  Json all = Json::array();
  for (const auto count : parameters)
    all.push_back({{"parameters", count},
                   {"state_bytes", static_cast<std::int64_t>(static_cast<double>(count) * bytes_per_parameter)}});
  return all;
}

}  // namespace

double state_bytes_per_parameter(const Config& config, int replicas) {
  const planner::Program program = planner::gantry_program(config.precision, config.optimizer);
  const ZeroLevel& zero = zero_level(config.parallel.zero);
  const double partitions = zero.states ? replicas : 1, gradients = zero.gradients ? replicas : 1;
  return program.mask_bytes + program.gradient_bytes / gradients + program.optimizer_bytes / partitions;
}

namespace {

// Returns the text of report.json on rank 0, "" on other ranks. Collective over the world.
std::string report_text(World& world, Plugin& plugin, Boosted& boosted, const RunFacts& facts, const Json& plan) {
  ProcessGroup& all = plugin.mesh().world_group();
  const auto parameters = all_gather_numbers(all, held_parameters(boosted));
  const Json communication = communication_of(all, facts);
  if (!world.is_main()) return "";
  const Config& config = world.config();
  const int replicas = plugin.mesh().size(axis::kData), sharing = plugin.mesh().batch_group().size();
  Json report = {{"format", 1},
                 {"mesh", mesh_of(world.mesh())},
                 {"schedule",
                  {{"name", config.schedule.name},
                   {"microbatches", plugin.microbatches(boosted.loader->global_batch() / replicas)}}},
                 {"stages", stages_of(plugin.stages(), boosted)},
                 {"memory", memory_of(parameters, state_bytes_per_parameter(config, sharing))},
                 {"communication", communication},
                 {"operators", operators_of(facts.operators)},
                 {"environment", environment(world)}};
  if (!plan.is_null()) report["plan"] = plan;
  if (facts.pictures)
    report["timeline"] = {{"step", facts.step},
                          {"measured", timeline_of(facts.pictures->measured)},
                          {"simulated", timeline_of(facts.pictures->simulated)}};
  if (facts.pictures && is_measured(facts.pictures->layers)) report["layer_times"] = to_json(facts.pictures->layers);
  return report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void note_failure(const std::string& path, const std::string& failure) {
  std::ifstream file(path);
  Json report = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!report.is_object()) return;
  report["failure"] = failure;
  write_text_durably(path, report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace

std::string write_run_report(World& world, Plugin& plugin, Boosted& boosted, const RunFacts& facts) {
  const Json plan = planned_step(world.config(), plugin.mesh(), facts);
  const std::string text = report_text(world, plugin, boosted, facts, plan);
  const DiskProgress progress;
  std::exception_ptr fault;  // thrown after the exchange of the ranks, because the run continues
  work_on_disk(plugin.mesh().world_group(), disk_limits(world.config().comm.timeout_seconds), progress, [&] {
    try {
      if (world.is_main()) write_text_durably(world.config().output + "/report.json", text);
    } catch (const ResourceError&) {
      fault = std::current_exception();
    }
  });
  if (fault) std::rethrow_exception(fault);
  return plan.is_object() && plan.contains("largest_gap") ? plan["largest_gap"]["text"].get<std::string>() : "";
}

void write_last_report(const std::string& folder, const std::string& failure) {
  note_failure(folder + "/report.json", failure);
  write_report(folder);
}

}  // namespace gantry
