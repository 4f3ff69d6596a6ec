#include "gantry/policies/apply_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mutex>

#include "gantry/policies/plan_rules.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// A custom module may return shards without axes.
void check_axes(const std::string& path, const Placements& placements, const ShardAxes& axes) {
  const auto given = names_of(axes.axes());
  for (const auto& [name, split] : placements)
    for (const ShardSpec& shard : split.shards)
      if (shard.axes != axes.axes())
        throw ConfigError({path + "." + name,
                           fmt::format("it is sharded over the axes [{}]", fmt::join(names_of(shard.axes), ", ")),
                           fmt::format("the axes [{}] that were passed to shard()", fmt::join(given, ", ")),
                           "return axes.over(cut) from shard()"});
}

Placements shard_one(const std::string& path, torch::nn::Module& module, const ShardStyle& style,
                     const ShardAxes& axes) {
  auto* shardable = dynamic_cast<Shardable*>(&module);
  if (!shardable) {
    if (is_about_sequence(style)) return {};  // place_plain() places its parameters
    throw ConfigError(
        {path, "a " + module.name() + " cannot be sharded as " + describe(style), "a Shardable module",
         "use gantry::nn::Linear or gantry::nn::Embedding, or derive your module from gantry::Shardable"});
  }
  Placements placements;
  try {
    shardable->claim();
    placements = shardable->shard(style, axes);
  } catch (const ConfigError& error) {
    const auto* expert = std::get_if<Expert>(&style);
    throw ConfigError(
        {path, fmt::format("it cannot be sharded as {} over {} ranks: {}", describe(style), axes.ranks(), error.what()),
         "",
         fmt::format("lower the number of ranks ({}), or change the shard plan",
                     expert && expert->partitioned ? "parallel.expert" : "parallel.tensor")});
  }
  check_axes(path, placements, axes);
  return placements;
}

void refuse_unstated(const std::vector<std::string>& paths) {
  if (paths.empty()) return;
  constexpr std::size_t kShown = 6;
  const std::vector<std::string> shown(paths.begin(),
                                       paths.begin() + static_cast<std::ptrdiff_t>(std::min(paths.size(), kShown)));
  const std::string more = paths.size() > kShown ? fmt::format(" and {} more", paths.size() - kShown) : "";
  throw ConfigError(
      {"shard plan",
       fmt::format("the activations are sequence shards, but no rule covers these modules and parameters: {}{}",
                   fmt::join(shown, ", "), more),
       "SequenceParallel{} for work on this rank's shard of the sequence or FullSequence{} for work on the full "
       "sequence (before it is split, after it is gathered)",
       fmt::format("add {{\"{0}\", SequenceParallel{{}}}} or {{\"{0}\", FullSequence{{}}}} to the plan",
                   paths.front())});
}

// Parameters whose gradients are already reduced within the backward. Guarded by the mutex, because rank
// threads shard their models at the same time.
class SummedParameters {
 public:
  void add(const torch::Tensor& parameter, const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::erase_if(parameters_, [](const auto& known) { return known.expired(); });
    for (const auto& known : parameters_)
      if (known._unsafe_get_target() == parameter.unsafeGetTensorImpl())
        throw ConfigError({name, "its gradient is already reduced by another plan", "one plan for each parameter",
                           "shard the model once, or build a new model each time"});
    parameters_.emplace_back(parameter.getIntrusivePtr());
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> parameters_;
};

void sum_in_backward(const torch::Tensor& parameter, const std::string& name, ProcessGroup& group) {
  if (group.size() == 1) return;
  static SummedParameters summed;
  summed.add(parameter, name);
  const bool trained = parameter.requires_grad();
  parameter.requires_grad_(true);  // required to register a hook, which then remains
  parameter.register_hook([&group](const torch::Tensor& part) {
    torch::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
    group.all_reduce(sum).wait();
    return sum;
  });
  parameter.requires_grad_(trained);
}

// Places a parameter of modules that are not Shardable. Its gradient is partial if a rule states
// SequenceParallel{}, and full if it states FullSequence{}.
void place_plain(const NamedTensor& parameter, const PlanRules& rules, const ShardAxes& axes, Placements& placements) {
  std::size_t summed_here = 0;
  for (const auto& name : parameter.names) {
    if (rules.is_in_shardable(name)) continue;
    const ShardRule* rule = rules.speaking_for(name);
    const auto* sequence = rule ? std::get_if<SequenceParallel>(&rule->style) : nullptr;
    if (!sequence) continue;
    placements[name] = split_of(rule->style, parameter.tensor.sizes().vec(), axes.axes());
    if (sequence->gradient_sum == GradientSum::kInBackward) ++summed_here;
  }
  if (summed_here == 0) return;
  if (summed_here < parameter.names.size())
    throw ConfigError(
        {parameter.names.front(), "the parameter is shared by modules of which only some get sequence shards",
         "SequenceParallel{} for all of these modules, and no Shardable module among them", "untie the modules"});
  sum_in_backward(parameter.tensor, parameter.names.front(), axes.group());
}

// See resolve_plan.
ShardStyle resolved_style(ShardStyle style, bool sequence_parallel, GradientSum sum,
                          const std::optional<ExpertDispatch>& dispatch) {
  const Layout border = sequence_parallel ? Layout(Shard{1}) : Layout(Replicate{});
  if (auto* column = std::get_if<Column>(&style)) {
    if (!column->input) column->input = border;
    column->gradient_sum = sum;
  } else if (auto* row = std::get_if<Row>(&style)) {
    if (!row->output) row->output = border;
    row->gradient_sum = sum;
  } else if (auto* vocab = std::get_if<Vocab>(&style)) {
    if (!vocab->output) vocab->output = border;
  } else if (auto* sequence = std::get_if<SequenceParallel>(&style)) {
    sequence->gradient_sum = sum;
  } else if (auto* heads = std::get_if<OnHeads>(&style)) {
    heads->gradient_sum = sum;
  } else if (auto* expert = std::get_if<Expert>(&style)) {
    if (!expert->border) expert->border = border;
    expert->gradient_sum = sum;
    expert->partitioned = dispatch.has_value();
    if (dispatch) expert->dispatch = *dispatch;
  }
  return style;
}

const ShardAxes& axes_of(const std::string& path, const ShardStyle& style, const PlanAxes& axes) {
  if (std::ranges::count(axes.paths, path) > 0) return *axes.apart;
  const auto* expert = std::get_if<Expert>(&style);
  if (!expert || !expert->partitioned) return axes.layers;
  if (!axes.experts)
    throw ConfigError({"shard plan", "Expert{.partitioned = true} needs an axis for experts, which this mesh lacks",
                       "Expert{}, which follows parallel.expert", ""});
  return *axes.experts;
}

bool needs_sequence_shards(const ShardStyle& style) {
  return is_about_sequence(style) || std::holds_alternative<PrepareInput>(style);
}

}  // namespace

ShardPlan resolve_plan(const ShardPlan& plan, bool sequence_parallel, GradientSum sum,
                       const std::optional<ExpertDispatch>& dispatch) {
  ShardPlan split, other;
  for (const auto& [pattern, style] : plan)
    (needs_sequence_shards(style) ? other : split)
        .push_back({pattern, resolved_style(style, sequence_parallel, sum, dispatch)});
  // A plan may set sequence shards at a border itself.
  if (sequence_parallel || shards_activations(split)) split.insert(split.end(), other.begin(), other.end());
  return split;
}

Placements apply_plan(const ModelMap& map, const ShardPlan& plan, const PlanAxes& axes) {
  const PlanRules rules(map, plan);
  if (shards_activations(plan)) refuse_unstated(rules.unstated());
  Placements placements;
  for (const auto& [path, module] : map.modules)
    if (const ShardStyle* style = rules.style_of(path))
      for (const auto& [name, placement] : shard_one(path, *module, *style, axes_of(path, *style, axes)))
        placements[path + "." + name] = placement;
  for (const auto& parameter : map.parameters) place_plain(parameter, rules, axes.layers, placements);
  return placements;
}

}  // namespace gantry
