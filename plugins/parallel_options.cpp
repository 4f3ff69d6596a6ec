#include "gantry/plugins/parallel_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tuple>
#include <utility>

#include "gantry/core/config/context_choice.h"
#include "gantry/core/error.h"
#include "gantry/planner/recompute.h"
#include "gantry/schedule/offload_actions.h"
#include "gantry/schedule/parameter_actions.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// The names of an enumeration's values in the configuration.
template <class Value>
struct NamedValue {
  const char* name;
  Value value;
};

constexpr NamedValue<Recomputation> kRecomputations[] = {{"none", Recomputation::kNone},
                                                         {"selective", Recomputation::kSelective},
                                                         {"parts", Recomputation::kParts},
                                                         {"full", Recomputation::kFull}};
constexpr NamedValue<VocabularyPlace> kVocabularyPlaces[] = {
    {"stages", VocabularyPlace::kStages}, {"pipeline", VocabularyPlace::kPipeline}, {"auto", VocabularyPlace::kAuto}};
constexpr NamedValue<ExpertDispatch> kDispatches[] = {{"all_to_all", ExpertDispatch::kAllToAll},
                                                      {"all_gather", ExpertDispatch::kAllGather}};
constexpr NamedValue<RouterLoss> kRouterLosses[] = {{"none", RouterLoss::kNone},
                                                    {"sequence", RouterLoss::kSequence},
                                                    {"microbatch", RouterLoss::kMicrobatch},
                                                    {"transformers", RouterLoss::kTransformers}};
constexpr NamedValue<schedule::Gather> kGathers[] = {{"step", schedule::Gather::kStep},
                                                     {"window", schedule::Gather::kWindow},
                                                     {"microbatch", schedule::Gather::kMicrobatch}};

template <class Value, std::size_t kSize>
Value value_of(const NamedValue<Value> (&table)[kSize], const std::string& name) {
  for (const auto& each : table)
    if (name == each.name) return each.value;
  throw InternalError({"ParallelOptions", "'" + name + "' passed the checks of the configuration", "", ""});
}

template <class Value, std::size_t kSize>
const char* name_in(const NamedValue<Value> (&table)[kSize], const Value& value, const char* key) {
  for (const auto& each : table)
    if (value == each.value) return each.name;
  std::vector<std::string> names;
  for (const auto& each : table) names.emplace_back(each.name);
  throw ConfigError({key, "the option has no value of its type", fmt::format("{}", fmt::join(names, ", ")), ""});
}

// Returns the configuration with these options.
Config stated(const ParallelOptions& options, const Mesh& mesh) {
  Config config;
  config.model.policy = options.policy;
  config.train.seed = options.seed;
  auto& parallel = config.parallel;
  parallel.tensor = mesh.axis_size(axis::kTensor);
  parallel.pipeline = mesh.axis_size(axis::kPipeline);
  parallel.data = mesh.axis_size(axis::kData);
  parallel.context = mesh.ranks_of_sequence();
  if (mesh.has_expert_view()) parallel.expert = mesh.axis_size(axis::kExpert);
  parallel.sequence_parallel = options.axes.tensor.sequence_parallel;
  parallel.tensor_overlap = options.axes.tensor.overlap;
  if (options.axes.context.method) parallel.context_method = name_of(*options.axes.context.method);
  parallel.ulysses = options.axes.context.ulysses;
  parallel.vocabulary = name_in(kVocabularyPlaces, options.axes.vocabulary, "parallel.vocabulary");
  parallel.zero = options.zero.stage;
  parallel.shard = options.zero.shard;
  if (options.zero.gather) parallel.gather = name_in(kGathers, *options.zero.gather, "parallel.gather");
  parallel.bucket_mb = options.zero.bucket_mb;
  static_cast<ScheduleOptions&>(config.schedule) = options.schedule;
  config.schedule.recompute = name_in(kRecomputations, options.recompute.how, "schedule.recompute");
  config.schedule.recompute_layers = options.recompute.layers;
  const ExpertsOptions& experts = options.experts;
  config.experts = {.dispatch = name_in(kDispatches, experts.dispatch, "experts.dispatch"),
                    .balance = name_of(experts.balance),
                    .aux_loss = experts.aux_loss,
                    .z_loss = experts.z_loss,
                    .bias_update = experts.bias_update};
  if (options.precision.parameters) config.precision = dtype_name(*options.precision.parameters);
  if (options.precision.loss_scale) {
    config.precision = "float16";
    config.loss_scale = *options.precision.loss_scale;
  }
  config.optimizer.clip_grad_norm = options.update.clip_grad_norm;
  config.train.ema = options.update.ema;
  config.train.audit_every = options.update.audit_every;
  const auto& offload = options.devices.offload;
  config.train.offload =
      offload.state ? (offload.activations ? "both" : "optimizer") : (offload.activations ? "activations" : "none");
  config.train.device_graphs = options.devices.graphs;
  return config;
}

// A configuration that a program has built follows the same rules as a file.
void check_like_a_file(const Config& config) {
  Config::parse_written(config.to_yaml(), /*name=*/"");
  if (config.parallel.expert > 1 && config.parallel.vocabulary != "stages")
    throw ConfigError(
        {"parallel.vocabulary",
         fmt::format("the value is {}, but parallel.expert is {}", config.parallel.vocabulary, config.parallel.expert),
         "stages if experts are on several ranks", "remove one of the two keys"});
}

}  // namespace

const char* name_of(RouterLoss loss) { return name_in(kRouterLosses, loss, "experts.balance"); }

ParallelOptions parallel_options(const Config& config, const Mesh& mesh) {
  check_like_a_file(config);
  const auto parameters = dtype_of(config.precision);  // throws for the short names, which only files may use
  ScheduleConfig schedule = config.schedule;
  if (const auto choice = planner::chosen_recompute(config, mesh.axis_size(axis::kData)))
    planner::apply(*choice, schedule);
  const auto& [parallel, experts] = std::tie(config.parallel, config.experts);
  ParallelOptions options{.policy = config.model.policy, .seed = config.train.seed};
  options.axes.tensor = {.sequence_parallel = parallel.sequence_parallel, .overlap = parallel.tensor_overlap};
  options.axes.context = {.method = context_method_of(parallel.context_method),
                          .ulysses = parallel.ulysses,
                          .tokens = config.data.format.empty() ? 0 : config.data.sequence_length};
  options.axes.vocabulary = value_of(kVocabularyPlaces, parallel.vocabulary);
  options.zero = {.stage = parallel.zero, .shard = parallel.shard, .gather = {}, .bucket_mb = parallel.bucket_mb};
  if (parallel.gather != "auto") options.zero.gather = schedule::gather_of(parallel.gather, /*pipeline=*/1);
  options.schedule = schedule;
  options.recompute = {.how = value_of(kRecomputations, schedule.recompute), .layers = schedule.recompute_layers};
  options.experts = {.dispatch = value_of(kDispatches, experts.dispatch),
                     .balance = value_of(kRouterLosses, experts.balance),
                     .aux_loss = experts.aux_loss,
                     .z_loss = experts.z_loss,
                     .bias_update = experts.bias_update};
  if (config.used_keys->is_given("precision")) options.precision.parameters = parameters;
  if (config.precision == "float16") options.precision.loss_scale = config.loss_scale;
  options.update = {.clip_grad_norm = config.optimizer.clip_grad_norm,
                    .skip_non_finite = config.train.non_finite == "skip",
                    .ema = config.train.ema,
                    .audit_every = config.train.audit_every,
                    .is_saved = !config.checkpoint.path.empty()};
  options.devices = {.offload = schedule::offload_of(config.train.offload), .graphs = config.train.device_graphs};
  return options;
}

void check(const ParallelOptions& options, const Mesh& mesh) { check_like_a_file(stated(options, mesh)); }

}  // namespace gantry
