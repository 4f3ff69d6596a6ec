#include "gantry/plugins/stage_recording.h"

#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/pipeline/stage_runtime.h"
#include "gantry/tensors/exceptions.h"
#include "gantry/tensors/host_copy.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/recorded_use.h"

namespace gantry {
namespace {

// Allocates a tensor like `given`. Returns `given` itself if this rank does not read it (meta device).
torch::Tensor memory_like(const torch::Tensor& given) {
  if (!given.defined() || given.is_meta()) return given;
  torch::Tensor made = given.is_non_overlapping_and_dense()
                           ? torch::empty_strided(given.sizes(), given.strides(), given.options())
                           : torch::empty(given.sizes(), given.options());
  return made.requires_grad_(given.requires_grad());
}

TensorDict memory_like(const TensorDict& given) {
  TensorDict made;
  for (const auto& [name, tensor] : given) made.set(name, memory_like(tensor));
  return made;
}

void copy_into(TensorDict& memory, const TensorDict& given) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : memory)
    if (tensor.defined() && !tensor.is_meta()) tensor.detach().copy_(given.at(name));
}

// Ends a capture that has begun. Errors are ignored, because the error that aborted the capture is reported.
void abandon(DeviceGraph& graph) {
  try {
    graph.end();
  } catch (...) {
  }
}

void refuse_draws(const std::string& what) {
  throw ConfigError({"train.device_graphs", what + " uses random numbers, which a captured CUDA graph would repeat",
                     "a model without dropout and noise", "set its dropout to 0, or remove train.device_graphs"});
}

}  // namespace

bool is_known_to_hide_nothing(const std::string& name, const torch::Tensor& entry) {
  if (!name.ends_with("attention_mask") || !entry.defined() || entry.is_meta()) return false;
  const torch::Tensor known = on_host(entry);
  return known.defined() && number_of(known.all()) != 0;
}

void StageRecording::record(const char* what, std::unique_ptr<DeviceGraph>& graph, const std::function<void()>& work) {
  const std::string named = fmt::format("the {} of stage {}", what, stage_);
  auto made = make_device_graph(device_.type());
  const RecordedUse use(device_);
  made->begin(pool_);
  try {
    work();
  } catch (const Error&) {
    abandon(*made);
    throw;
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    abandon(*made);
    if (use.draws()) refuse_draws(named);
    if (failure.exit_code != InternalError::kExitCode) throw;
    throw ConfigError(
        {"train.device_graphs", fmt::format("{} cannot be captured: \"{}\"", named, failure.line),
         "work on the device without device-to-host reads",
         "remove train.device_graphs, or the code of the model that reads values of a tensor on the host"});
  }
  made->end();
  if (use.draws()) refuse_draws(named);
  pool_ = made->pool();
  const auto used = use.used();
  used_.insert(used_.end(), used.begin(), used.end());
  graph = std::move(made);
}

const StageRecording::Made& StageRecording::forward(const TensorDict& batch, const TensorDict& input,
                                                    const Forward& compute) {
  if (!forward_) {
    batch_ = memory_like(batch);
    input_ = memory_like(input);
  }
  copy_into(batch_, batch);
  copy_into(input_, input);
  if (!forward_) {
    std::vector<HostCopy> known;
    for (const auto& [name, tensor] : batch)
      if (is_known_to_hide_nothing(name, tensor))
        known.emplace_back(batch_.at(name), torch::ones_like(on_host(tensor)));
    record("forward", forward_, [&] { made_ = compute(batch_, input_, store_); });
  }
  forward_->replay();
  return made_;
}

void StageRecording::give_seeds(const TensorDict& gradients, double seed) {
  const torch::NoGradGuard no_grad;
  if (!backward_) {
    for (const auto& [name, tensor] : made_.boundary) {
      const torch::Tensor gradient = gradients.get(name);
      if (tensor.defined() && tensor.requires_grad() && gradient.defined())
        gradients_.set(name, memory_like(gradient.detach()));
    }
    if (made_.loss) seed_ = torch::empty_like(made_.loss->sum);
  }
  for (const auto& [name, tensor] : gradients_)
    if (!gradients.get(name).defined())
      throw InternalError({fmt::format("stage {}", stage_),
                           "the gradient of '" + name + "' is missing, but was present at capture",
                           "the same gradients for all microbatches of one shape", ""});
  copy_into(gradients_, gradients);
  const bool is_new = !backward_ || seed != seed_value_;
  if (seed_.defined() && is_new) seed_.fill_(seed);
  seed_value_ = seed;
}

// The loss's sum is not multiplied by the seed. Instead, the seed is passed as its gradient.
void StageRecording::run_backward(bool is_split) {
  std::vector<torch::Tensor> roots, seeds;
  if (made_.loss && made_.loss->sum.requires_grad()) {
    roots.push_back(made_.loss->sum);
    seeds.push_back(seed_);
  }
  for (const auto& [name, gradient] : gradients_) {
    roots.push_back(made_.boundary.at(name));
    seeds.push_back(gradient);
  }
  store_.collect(is_split);
  if (!roots.empty()) torch::autograd::backward(roots, seeds, /*retain_graph=*/true);
  store_.collect(false);
}

TensorDict StageRecording::backward(const TensorDict& gradients, double seed, bool is_split) {
  give_seeds(gradients, seed);
  if (!backward_) record("backward", backward_, [&] { run_backward(is_split); });
  replay(*backward_);
  const torch::NoGradGuard no_grad;
  TensorDict copies;
  for (const auto& [name, gradient] : gradients_of(input_))
    copies.set(name, gradient.defined() ? gradient.clone() : gradient);
  return copies;
}

void StageRecording::backward_weight() {
  if (!weights_) {
    split_work_ = store_;
    record("backward of weights", weights_, [&] { store_.run(); });
  }
  replay(*weights_);
}

// Versions show whether gradients have changed, but a replay does not increase them.
void StageRecording::replay(DeviceGraph& graph) {
  graph.replay();
  for (const torch::Tensor& parameter : parameters_)
    if (const torch::Tensor& gradient = parameter.grad(); gradient.defined() && !gradient.is_inference())
      gradient.unsafeGetTensorImpl()->bump_version();
}

}  // namespace gantry
