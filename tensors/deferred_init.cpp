#include "gantry/tensors/deferred_init.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "gantry/core/error.h"
#include "gantry/tensors/deferred_record.h"
#include "gantry/tensors/slice_copy.h"
#include "gantry/tensors/tensor_dict.h"
#include "gantry/tensors/use_watch.h"

namespace gantry {
namespace {

using deferred::Argument;
using deferred::Step;

constexpr auto kKey = c10::DispatchKey::DeferredInit;

bool makes_untouched_memory(const std::string& op) {
  static const std::set<std::string> kNames = {"aten::empty", "aten::empty_like", "aten::empty_strided",
                                               "aten::new_empty", "aten::new_empty_strided"};
  return kNames.contains(op);
}

// Random operations that use the shared generator. Their numbers would depend on the layout.
bool draws_random_numbers(const c10::OperatorHandle& op) {
  static const std::set<std::string> kFactories = {"aten::rand",         "aten::rand_like",   "aten::randn",
                                                   "aten::randn_like",   "aten::randint",     "aten::randperm",
                                                   "aten::randint_like", "aten::bernoulli",   "aten::dropout",
                                                   "aten::normal",       "aten::multinomial", "aten::poisson"};
  static const std::set<std::string> kInPlace = {"aten::random_", "aten::cauchy_", "aten::exponential_",
                                                 "aten::geometric_", "aten::log_normal_"};
  const std::string& name = op.schema().name();
  return kFactories.contains(name) || kInPlace.contains(name);
}

// Operations that do not use the values of their input.
bool reads_no_values(const c10::OperatorHandle& op) {
  static const std::set<std::string> kNames = {
      "aten::requires_grad_", "aten::retain_grad",  "aten::set_data",  "aten::is_leaf",   "aten::output_nr",
      "aten::_version",       "aten::is_same_size", "aten::detach_",   "aten::size",      "aten::stride",
      "aten::zeros_like",     "aten::ones_like",    "aten::full_like", "aten::new_zeros", "aten::new_ones",
      "aten::new_full",       "aten::is_pinned",    "aten::sym_size",  "aten::sym_numel"};
  return kNames.contains(op.schema().name());
}

bool is_view(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns())
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  return false;
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& why) {
  throw UsageError({"deferred initialisation", "the operator " + op.schema().name() + " is not supported: " + why,
                    "in-place initialisation such as uniform_, normal_, fill_",
                    "make the tensor with empty and fill it in place, or build the model without DeferredInit"});
}

// The arguments of a step. Tensors of the written storage are replaced by their positions in it.
std::vector<Argument> recorded_arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                         const torch::Tensor& written) {
  const std::size_t count = op.schema().arguments().size();
  std::vector<Argument> arguments;
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (!value.isTensor() || !value.toTensor().defined()) {
      arguments.emplace_back(value);
    } else if (value.toTensor().has_storage() && value.toTensor().is_alias_of(written)) {
      arguments.emplace_back(deferred::geometry_of(value.toTensor()));
    } else if (deferred::has_steps(value.toTensor())) {
      refuse(op, "another tensor that it reads has no values yet");
    } else {
      arguments.emplace_back(c10::IValue(value.toTensor().detach().clone()));
    }
  }
  return arguments;
}

// The first tensor that the call writes, or an undefined one.
torch::Tensor written_tensor(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = stack[stack.size() - arguments.size() + i];
    if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite() && value.isTensor()) return value.toTensor();
  }
  return {};
}

bool reads_deferred(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  for (std::size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    if (stack[i].isTensor() && deferred::has_steps(stack[i].toTensor())) return true;
    if (stack[i].isTensorList())
      for (const torch::Tensor& tensor : stack[i].toTensorVector())
        if (deferred::has_steps(tensor)) return true;
  }
  return false;
}

void record_write(const c10::OperatorHandle& op, torch::jit::Stack* stack, const torch::Tensor& written) {
  deferred::add_step(written, {op, recorded_arguments(op, *stack, written)});
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (std::size_t i = 0; i < op.schema().returns().size(); ++i) stack->emplace_back(written);
}

// The dispatch key is active for all calls of a thread under DeferredInit, and otherwise for calls with
// tensors whose uses are watched (tensors/use_watch.h).
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const std::string& name = op.schema().name();
  refuse_partial_norms(name, *stack, op.schema().arguments().size());
  if (!reads_no_values(op) && !makes_untouched_memory(name))  // views too, whose bounds are checked
    tell_watches(*stack, op.schema().arguments().size());
  if (!c10::impl::tls_is_dispatch_key_included(kKey)) {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    if (is_view(op)) notice_views(*stack, op.schema().returns().size());
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  if (draws_random_numbers(op)) refuse(op, "it takes random numbers from the shared generator");

  const torch::Tensor written = written_tensor(op, *stack);
  if (written.defined() && written.has_storage() && !reads_no_values(op)) {
    const bool random = deferred::is_random(name);
    // Memory without recorded steps may have been filled through its pointer (torch::tensor does so). Unless
    // this step overwrites all of it, these values matter, and the tensor is not deferred any more.
    const bool untouched = deferred::is_recorded(written) && !deferred::has_steps(written);
    if (untouched && !(deferred::is_full(written) && (random || deferred::overwrites_everything(name))))
      deferred::take_record(written);
    if (random && !deferred::is_recorded(written)) deferred::start_record(written, written.detach().clone());
    if (deferred::is_recorded(written)) return record_write(op, stack, written);
  } else if (reads_deferred(op, *stack) && !is_view(op) && !reads_no_values(op) && !makes_untouched_memory(name)) {
    refuse(op, "a tensor that it reads has no values yet");
  }
  op.callBoxed(stack);
  if (makes_untouched_memory(name) && stack->back().toTensor().is_floating_point())
    deferred::start_record(stack->back().toTensor());
}

void require_size(const torch::Tensor& tensor, const ShardSpec& shard, std::int64_t expected) {
  throw ConfigError(
      {"", fmt::format("{} has {} elements along dim {}", describe(tensor), tensor.size(shard.dim), shard.dim),
       fmt::format("{}", expected), "create the module's parameters with the sizes that its options state"});
}

// The part of a tensor of this shape that the rank holds.
AppliedShard applied_to(const Shape& shape, const ShardSpec& shard, int rank) {
  const std::int64_t extent = shard.row > 0 ? elements_of(shape) / shard.row : shape.at(shard.dim);
  return {shard.dim, shard.row, shard.ranges(rank, extent)};
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

DeferredInit::DeferredInit() : former_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

DeferredInit::~DeferredInit() { c10::impl::tls_set_dispatch_key_included(kKey, former_); }

bool is_deferred(const torch::Tensor& tensor) { return deferred::is_recorded(tensor); }

void shard_tensor(torch::Tensor& tensor, const ShardSpec& shard, int rank) {
  if (!shard.sharded() || !tensor.defined() || tensor.numel() == 0) return;
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  const torch::NoGradGuard no_grad;
  if (!shard.segments.empty() && shard.row == 0) {
    const std::int64_t full = shard.segments.back().extent.end;
    if (tensor.size(shard.dim) == shard.local_size(rank))
      return;  // one rank, or a tied parameter that is sharded already
    if (tensor.size(shard.dim) != full) require_size(tensor, shard, full);
  }
  const Shape left = tensor.sizes().vec();
  const AppliedShard applied = applied_to(left, shard, rank);
  const Slice kept = apply_shards(left, {applied});
  torch::Tensor part = torch::empty(kept.shape, tensor.options().requires_grad(false));
  if (auto record = deferred::take_record(tensor)) {
    record->shards.push_back(applied);
    deferred::put_record(part, std::move(*record));
  } else {
    copy_common(part, kept, tensor.detach(), full_slice(left));
  }
  tensor.set_data(part);
}

void release_tensor(torch::Tensor& tensor) {
  if (!tensor.defined()) return;
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  deferred::take_record(tensor);
  tensor.set_data(torch::empty({0}, tensor.options().requires_grad(false)));
}

void materialize(torch::Tensor& tensor, const std::string& global_name, std::uint64_t seed, torch::Device device) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  auto record = deferred::take_record(tensor);
  if (!record) return;
  const torch::NoGradGuard no_grad;
  const bool here = device == tensor.device() || device.is_cpu();
  torch::Tensor target =
      here ? tensor.detach() : torch::empty(tensor.sizes(), tensor.options().requires_grad(false).device(device));
  deferred::replay(*record, target, global_name, seed);
  if (!here) tensor.set_data(target);
}

void materialize(torch::nn::Module& module, std::uint64_t seed) {
  for (auto& item : module.named_parameters()) materialize(item.value(), item.key(), seed);
  for (auto& item : module.named_buffers()) materialize(item.value(), item.key(), seed);
}

std::vector<std::string> float32_parameters(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_modules("", /*include_self=*/true))
    if (const auto* keeps = dynamic_cast<const KeepsFloat32*>(item.value().get()))
      for (const auto& parameter : item.value()->named_parameters(/*recurse=*/false))
        if (keeps->keeps_float32(parameter.key()))
          names.push_back(item.key().empty() ? parameter.key() : item.key() + "." + parameter.key());
  return names;
}

void set_dtype(torch::nn::Module& module, torch::ScalarType type) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  const torch::NoGradGuard no_grad;
  const bool is_low = type == torch::kBFloat16 || type == torch::kFloat16;
  const auto kept = is_low ? float32_parameters(module) : std::vector<std::string>();
  auto convert = [](torch::Tensor& tensor, torch::ScalarType to) {
    if (!tensor.defined() || !tensor.is_floating_point() || tensor.scalar_type() == to) return;
    if (auto record = deferred::take_record(tensor)) {
      torch::Tensor fresh = torch::empty(tensor.sizes(), tensor.options().dtype(to).requires_grad(false));
      deferred::put_record(fresh, std::move(*record));
      tensor.set_data(fresh);
    } else {
      tensor.set_data(tensor.detach().to(to));
    }
  };
  for (auto& item : module.named_parameters())
    convert(item.value(), std::find(kept.begin(), kept.end(), item.key()) == kept.end() ? type : torch::kFloat32);
  for (auto& buffer : module.buffers()) convert(buffer, type);
}

}  // namespace gantry
