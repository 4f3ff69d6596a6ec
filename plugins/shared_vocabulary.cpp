#include "gantry/plugins/shared_vocabulary.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/plugins/model_setup.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

template <class Holder>
Holder module_at(const torch::nn::Module& model, const std::string& path) {
  const auto modules = model.named_modules("", /*include_self=*/false);
  const auto* found = modules.find(path);
  auto typed = found ? std::dynamic_pointer_cast<typename Holder::ContainedType>(*found) : nullptr;
  if (!typed)
    throw ConfigError({"parallel.vocabulary", "the value is pipeline, but " + path + " is not one of Gantry's modules",
                       "gantry::nn::Embedding and gantry::nn::Linear", "remove parallel.vocabulary"});
  return Holder(typed);
}

void refuse(const std::string& what, const std::string& expected) {
  throw ConfigError({"parallel.vocabulary", "the value is pipeline, but " + what, expected, "remove one of the two"});
}

void refuse_unsupported(const ZeroOptions& zero, const StageModule& module) {
  if (zero.stage > 1) refuse(fmt::format("parallel.zero is {}", zero.stage), "zero 0 or 1");
  if (has_adapters(module)) refuse("the run uses lora", "weights that are trained in full");
}

}  // namespace

ShardAxes SharedVocabulary::axes_of(const ProcessGroupMesh& mesh) { return {mesh, {axis::kPipeline, axis::kTensor}}; }

SharedVocabulary::SharedVocabulary(const StageModule& module, const ParallelOptions& options,
                                   const ProcessGroupMesh& mesh, const PipelineStageManager& stages)
    : first_rank_(stages.rank_of(0)), last_rank_(stages.rank_of(stages.num_stages() - 1)) {
  const VocabularyModules& modules = *module.vocabulary();
  refuse_unsupported(options.zero, module);
  embedding_ = module_at<nn::Embedding>(module.module(), modules.embedding);
  head_ = module_at<nn::Linear>(module.module(), modules.head);
  options_ = {.form = {.scale = modules.scale, .soft_cap = modules.soft_cap}, .loss = {}};
  output_ = modules.output;
  if (options.axes.tensor.sequence_parallel && mesh.size(axis::kTensor) > 1) sequence_ = &mesh[axis::kTensor];
  const auto pipelines = mesh.mesh().groups({axis::kPipeline});
  const auto all = mesh.mesh().groups({axis::kPipeline, axis::kTensor});
  hidden_ = mesh.make_group("hidden states", pipelines);
  embedding_gradients_ = mesh.make_group("gradients of embeddings", pipelines);
  embeddings_ = mesh.make_group("embeddings", all);
  statistics_ = mesh.make_group("statistics of logits", all);
  hidden_gradients_ = mesh.make_group("gradients of hidden states", all);
  outputs_ = mesh.make_group("logits", all);
}

std::optional<LabelledLoss> SharedVocabulary::loss_of(const Criterion& criterion) const {
  if (!criterion) return std::nullopt;
  if (!criterion.labelled() || criterion.labelled()->logits != output_)
    refuse("the criterion needs full outputs",
           "gantry::cross_entropy or gantry::causal_cross_entropy of '" + output_ + "'");
  return criterion.labelled();
}

}  // namespace gantry
