#include "gantry/booster/compare_layouts.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "gantry/booster/compared_step.h"
#include "gantry/core/error.h"
#include "gantry/launch/launch.h"
#include "gantry/launch/quiet_launch.h"
#include "gantry/optimizers/gradient_buffers.h"
#include "gantry/plugins/hybrid_parallel_plugin.h"
#include "gantry/plugins/sequence_parts.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/slice_copy.h"

namespace gantry {
namespace {

// The inputs that all runs of a comparison share.
struct ComparedStep {
  const std::function<std::shared_ptr<torch::nn::Module>()>& build;
  const TensorDict& batch;
  const CompareOptions& options;
};

// Splits a layout such as "a=1,b=[2,3]" at the commas outside of brackets.
std::vector<std::string> split_overrides(const std::string& layout) {
  std::vector<std::string> overrides;
  int depth = 0;
  bool begins = true;
  for (const char c : layout) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) {
      begins = true;
      continue;
    }
    if (begins) overrides.emplace_back();
    begins = false;
    overrides.back() += c;
  }
  return overrides;
}

void check_layout(const std::string& layout) {
  for (const auto& text : split_overrides(layout)) {
    const bool is_of_layouts = text.starts_with("parallel.") || text.starts_with("schedule.");
    if (!is_of_layouts || text.find('=') == std::string::npos)
      throw UsageError({"layout '" + layout + "'", "'" + text + "' is not a key of a layout with its value",
                        "KEY=VALUE of parallel or schedule, separated by commas",
                        "write for example parallel.tensor=2,parallel.pipeline=2"});
  }
}

Config in_float64(Config config) {
  config.precision = "float64";
  config.comm.backend = "local";
  // Only one step runs, so keys for other purposes have no effect; they all count as used.
  config.used_keys = std::make_shared<UsedKeys>();
  config.mark_used("");
  return config;
}

Config on_one_rank(Config config) {
  config.parallel = {};
  config.parallel.data = 1;
  config.schedule = {};
  config.schedule.microbatches = 1;
  return in_float64(std::move(config));
}

Config in_layout(const Config& config, const std::string& layout) {
  return in_float64(Config::parse_written(config.to_yaml(), "layout", split_overrides(layout)));
}

// Calls `use` with each parameter and buffer that has values.
void for_values(torch::nn::Module& model, const std::function<void(const std::string&, torch::Tensor&)>& use) {
  for (auto items : {model.named_parameters(), model.named_buffers()})
    for (auto& item : items)
      if (item.value().defined() && !is_deferred(item.value())) use(item.key(), item.value());
}

TensorDict built_values(torch::nn::Module& model) {
  TensorDict values;
  for_values(model, [&](const std::string& name, torch::Tensor& tensor) { values.set(name, tensor.detach().clone()); });
  return values;
}

void copy_values(const TensorDict& values, torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for_values(model, [&](const std::string& name, torch::Tensor& tensor) {
    if (values.contains(name)) tensor.copy_(values.at(name));
  });
}

// A boosted model on one rank.
class StepRank {
 public:
  StepRank(World& world, const Config& config, const ComparedStep& step,
           const std::shared_ptr<torch::nn::Module>& model)
      : step_(step), plugin_(new HybridParallelPlugin(world, config)), booster_(std::unique_ptr<Plugin>(plugin_)) {
    // The optimizer never steps. Without an optimizer there would be no gradients.
    auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.1));
    boosted_ = booster_.boost(model, optimizer, step.options.criterion);
    if (step.options.load) step.options.load(boosted_, plugin_->mesh());
    boosted_.model->train();
  }

  const StageModule& model() const { return boosted_.model->stage_module(); }
  const ProcessGroupMesh& mesh() const { return plugin_->mesh(); }
  // The tokens of the step's sequences that this rank computes; absent: all tokens.
  std::optional<OutputComparer::Tokens> tokens() const {
    const SequenceParts* parts = plugin_->sequence_parts(boosted_);
    if (!parts) return std::nullopt;
    return OutputComparer::Tokens{parts->shards_of(step_.batch, model().split().batch.tokens_of(step_.batch)),
                                  parts->group().rank()};
  }

  // Runs the step and returns its losses. Collective over the world.
  StepResult run(nn::OutputObserver& observer) {
    const auto batch = replica_part(make_batch(step_.batch), mesh().size(axis::kData), mesh().coordinate(axis::kData));
    StepResult result = booster_.execute_pipeline(batch, boosted_, {.broadcast_loss = true, .observer = &observer});
    boosted_.optimizer->gradients().complete();
    return result;
  }

  // The gradient of the i-th held parameter; zeros if the parameter is not trained.
  torch::Tensor gradient(std::size_t i) const {
    const torch::Tensor& gradient = boosted_.optimizer->gradients().gradient(i);
    return gradient.defined() ? gradient : torch::zeros_like(model().parameters[i].tensor);
  }

 private:
  const ComparedStep& step_;
  HybridParallelPlugin* plugin_;
  Booster booster_;
  Boosted boosted_;
};

std::shared_ptr<torch::nn::Module> build_in_float64(const ComparedStep& step) {
  auto model = step.build();
  if (!model) throw UsageError({"compare_layouts", "`build` returned no model", "", "return the full model"});
  set_dtype(*model, torch::kFloat64);
  return model;
}

FullStep run_full(const Config& config, const ComparedStep& step) {
  FullStep full;
  const auto failure = launch_quietly(on_one_rank(config), [&](World& world) {
    auto model = build_in_float64(step);
    full.values = built_values(*model);
    StepRank rank(world, world.config(), step, model);
    OutputKeeper keeper(rank.model(), full.outputs);
    const StepResult result = rank.run(keeper);
    full.loss = *result.loss;
    full.added_losses = result.added_losses;
    const auto& parameters = rank.model().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      full.gradients.set(parameters[i].placement.name, rank.gradient(i).clone());
  });
  if (failure) throw Error(failure->exit_code, "one rank: " + failure->line);
  return full;
}

void keep_worst(std::map<std::string, double>& worst, const std::map<std::string, double>& found) {
  for (const auto& [name, difference] : found) {
    double& largest = worst[name];
    largest = std::max(largest, difference);
  }
}

// Compares every held copy of every gradient with its part of the full gradient.
std::map<std::string, double> compare_gradients(const StepRank& rank, const FullStep& full) {
  std::map<std::string, double> differences;
  const auto& parameters = rank.model().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Placement& placement = parameters[i].placement;
    torch::Tensor expected = full.gradients.at(placement.name);
    expected = take_slice(expected, held_slice(placement, rank.mesh().coordinates()));
    differences[placement.name] = largest_difference(rank.gradient(i), expected);
  }
  return differences;
}

std::optional<Failure> run_layout(const Config& config, const ComparedStep& step, const FullStep& full,
                                  LayoutStep& found) {
  return launch_quietly(config, [&](World& world) {
    auto model = build_in_float64(step);
    copy_values(full.values, *model);
    StepRank rank(world, world.config(), step, model);
    OutputComparer comparer(rank.model(), full.outputs, rank.mesh()[axis::kTensor], rank.tokens());
    // If the step fails, the destructor keeps the comparisons made until then.
    struct Merge {
      ~Merge() {
        const std::lock_guard lock(found.mutex);
        keep_worst(found.outputs, comparer.differences());
      }
      LayoutStep& found;
      const OutputComparer& comparer;
    };
    const Merge merge{found, comparer};
    const StepResult result = rank.run(comparer);
    const auto gradients = compare_gradients(rank, full);
    const std::lock_guard lock(found.mutex);
    keep_worst(found.gradients, gradients);
    found.loss = *result.loss;
    found.added_losses = result.added_losses;
  });
}

LayoutComparison compare_layout(const Config& config, const std::string& layout, const ComparedStep& step,
                                const FullStep& full) {
  LayoutComparison comparison{.layout = layout.empty() ? "as configured" : layout};
  LayoutStep found;
  std::optional<Failure> failure;
  try {
    failure = run_layout(in_layout(config, layout), step, full, found);
  } catch (const Error& error) {  // from the configuration
    failure = Failure{error.exit_code(), error.what()};
  }
  if (failure) {
    comparison.error = failure->line;
    comparison.error_code = failure->exit_code;
  } else {
    judge_losses(full, found, step.options.tolerance, comparison);
    judge_gradients(full, found, step.options.tolerance, comparison);
  }
  comparison.reference_loss = full.loss;
  judge_outputs(full, found, step.options.tolerance, comparison);
  return comparison;
}

}  // namespace

std::vector<LayoutComparison> compare_layouts(const Config& config,
                                              const std::function<std::shared_ptr<torch::nn::Module>()>& build,
                                              const TensorDict& batch, const std::vector<std::string>& layouts,
                                              const CompareOptions& options) {
  if (current_world())
    throw UsageError(
        {"compare_layouts", "the call is within a rank of a launch", "", "call it outside of a launch, from main()"});
  if (!options.criterion)
    throw UsageError(
        {"compare_layouts", "there is no criterion, so there are no gradients", "", "set options.criterion"});
  for (const auto& layout : layouts) check_layout(layout);
  const ComparedStep step{build, batch, options};
  const FullStep full = run_full(config, step);
  std::vector<LayoutComparison> comparisons;
  for (const auto& layout : layouts) comparisons.push_back(compare_layout(config, layout, step, full));
  return comparisons;
}

}  // namespace gantry
