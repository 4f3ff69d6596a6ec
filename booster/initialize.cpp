#include "gantry/booster/initialize.h"

#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/readable_file.h"
#include "gantry/launch/launch.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/policies/plan_policy.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr const char* kOsloSection = "model_parallelism";

std::string text_of(const std::string& path) {
  std::ifstream file = open_for_reading(path);
  if (!file) throw ConfigError({path, "the file cannot be read", "a configuration file", "check the path"});
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int size_in(const nlohmann::json& section, const std::string& key, const std::string& path) {
  if (!section.contains(key)) return 1;
  const auto& value = section[key];
  if (!value.is_number_integer() || value.get<long long>() < 1 || value.get<long long>() > 1'000'000)
    throw ConfigError(
        {path + ": " + kOsloSection + "." + key, "the value is " + value.dump(), "a positive whole number", ""});
  return value.get<int>();
}

// Converts OSLO's keys to Gantry's. `//` comments are allowed, because OSLO's examples contain them.
Config from_oslo(const nlohmann::json& keys, const std::string& path) {
  const auto& section = keys[kOsloSection];
  if (keys.size() != 1 || !section.is_object() || section.empty())
    throw ConfigError({path, "the file has other keys than " + std::string(kOsloSection) + ", or this section is empty",
                       R"({"model_parallelism": {"tensor_parallel_size": N}})", ""});
  for (const auto& [key, value] : section.items())
    if (key != "tensor_parallel_size" && key != "pipeline_parallel_size")
      throw ConfigError({path + ": " + kOsloSection + "." + key, "unknown key",
                         "tensor_parallel_size or pipeline_parallel_size", ""});
  Config config;
  config.parallel.tensor = size_in(section, "tensor_parallel_size", path);
  config.parallel.pipeline = size_in(section, "pipeline_parallel_size", path);
  return config;
}

Config read(const std::string& path) {
  const std::string text = text_of(path);
  const auto parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (parsed.is_object() && parsed.contains(kOsloSection)) return from_oslo(parsed, path);
  // A configuration file must name a model, but here the caller passes the model.
  Config config = Config::parse(text, path, {"model.policy=initialized"});
  config.model.policy.clear();
  return config;
}

void check_sizes(const Config& config, const ProcessGroupMesh& mesh, const std::string& path) {
  if (config.parallel.pipeline != 1)
    throw ConfigError({path, fmt::format("parallel.pipeline is {}", config.parallel.pipeline), "1 for initialize",
                       "use gantry::Booster to run a pipeline"});
  if (config.parallel.tensor != mesh.size(axis::kTensor))
    throw ConfigError(
        {path,
         fmt::format("parallel.tensor is {}, but the job's mesh is {}", config.parallel.tensor, mesh.mesh().describe()),
         fmt::format("tensor {}", mesh.size(axis::kTensor)), "launch with the same sizes"});
}

// `where` names the configuration in messages.
Initialized boost_for_own_loop(torch::nn::Module& model, const Config& config, const InitializeOptions& options,
                               const std::string& where) {
  World* world = current_world();
  if (!world)
    throw UsageError({"initialize", "the call is not within a launch", "",
                      "call it within gantry::launch(config, body), which also works for `mpirun -n N PROGRAM`"});
  Booster booster(std::make_unique<HybridParallelPlugin>(*world, config));
  check_sizes(config, booster.mesh(), where);
  BoostRequest request{.model = model.shared_from_this(),
                       .optimizer = options.optimizer,
                       .criterion = {},
                       .loader = nullptr,
                       .lr_schedule = {},
                       .loop = Loop::kOwn,
                       .policy = nullptr};
  if (options.plan) request.policy = std::make_shared<const PlanPolicy>(*options.plan);
  Boosted boosted = booster.boost(std::move(request));
  return {std::move(booster), std::move(boosted)};
}

}  // namespace

Initialized initialize(torch::nn::Module& model, const Config& config, const InitializeOptions& options) {
  return boost_for_own_loop(model, config, options, "initialize");
}

Initialized initialize(torch::nn::Module& model, const std::string& path, const InitializeOptions& options) {
  return boost_for_own_loop(model, read(path), options, path);
}

}  // namespace gantry
