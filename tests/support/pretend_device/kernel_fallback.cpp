// Runs any operator of a device with its boxed CPU kernel on the device's memory.
#include "kernel_fallback.h"

#include <algorithm>
#include <optional>
#include <set>

#include <torch/library.h>

#include "cpu_view.h"
#include "device_generator.h"
#include "device_work.h"
#include "gantry/tensors/tensors_of_value.h"
#include "late_kernels.h"

namespace gantry::testing {
namespace {

// The device of a call. Throws if the tensors are on two devices, or if a tensor on the host is not a scalar,
// like CUDA.
c10::Device device_of_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  std::optional<c10::Device> device;
  const std::string& name = op.schema().name();
  for (const c10::IValue& argument : arguments) {
    for_each_tensor_of(argument, [&](const at::Tensor& tensor) {
      if (!on_pretend_device(tensor)) return;
      TORCH_CHECK(!device || *device == tensor.device(), name, ": tensors on ", device->str(), " and ",
                  tensor.device().str());
      device = tensor.device();
    });
    if (argument.isDevice() && argument.toDevice().type() == kPretendType) device = argument.toDevice();
  }
  TORCH_CHECK(device, name, ": called for a pretended device, with tensors of none");
  if (!device->has_index()) device = c10::impl::getDeviceGuardImpl(kPretendType)->getDevice();
  for (const c10::IValue& argument : arguments)
    for_each_tensor_of(argument, [&](const at::Tensor& tensor) {
      const bool takes_indices = name.starts_with("aten::index") || name.starts_with("aten::_index");
      TORCH_CHECK(!tensor.defined() || on_pretend_device(tensor) || tensor.dim() == 0 || takes_indices, name,
                  ": a tensor of the host's with shape ", tensor.sizes(), " beside one on ", device->str());
    });
  return *device;
}

// True if the operator itself copies a host tensor to the device, as CUDA does with indices.
bool waits_for_host(const std::vector<c10::IValue>& arguments) {
  bool found = false;
  for (const c10::IValue& argument : arguments)
    for_each_tensor_of(argument, [&](const at::Tensor& tensor) {
      found = found || (tensor.defined() && !on_pretend_device(tensor) && tensor.dim() > 0);
    });
  return found;
}

c10::IValue to_cpu(CpuView& view, const c10::IValue& value, c10::Device device, const c10::Argument& argument) {
  if (value.isTensor()) return view.of(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> all;
    for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(view.of(tensor));
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> all;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      all.push_back(tensor ? std::optional(view.of(*tensor)) : std::nullopt);
    return all;
  }
  if (value.isDevice()) return c10::Device(c10::kCPU);
  if (value.isGenerator()) return cpu_generator_of(value.toGenerator());
  if (value.isNone() && argument.name() == "generator") return cpu_generator_of(device_generator(device.index()));
  return value;
}

c10::IValue to_device(const CpuView& view, const c10::IValue& value, c10::Device device, const std::string& what) {
  if (value.isTensor()) return view.back(value.toTensor(), device, what);
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> all;
  for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(view.back(tensor, device, what));
  return all;
}

std::vector<Access> accesses_of(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments) {
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    const bool writes = alias && alias->isWrite();
    for_each_tensor_of(arguments[i], [&](const at::Tensor& tensor) {
      if (on_pretend_device(tensor)) accesses.push_back(access_of(tensor, writes));
    });
  }
  return accesses;
}

// True if the operator returns a view, so that nothing runs on the device.
bool gives_view(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.alias_info() && !result.alias_info()->isWrite();
  });
}

// True if the host has to wait for the results, because it needs their values or their shape depends on data.
bool gives_to_host(const c10::FunctionSchema& schema) {
  static const std::set<std::string> by_numbers{"aten::nonzero",  "aten::masked_select", "aten::_unique",
                                                "aten::_unique2", "aten::unique_dim",    "aten::unique_consecutive",
                                                "aten::bincount"};
  if (by_numbers.contains(schema.name())) return true;
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
    return result.type()->kind() != c10::TypeKind::TensorType && result.type()->kind() != c10::TypeKind::ListType;
  });
}

}  // namespace

void run_on_device(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto count_of_arguments = schema.arguments().size();
  std::vector<c10::IValue> arguments(stack->end() - static_cast<std::ptrdiff_t>(count_of_arguments), stack->end());
  torch::jit::drop(*stack, count_of_arguments);
  note_operator(schema.name().c_str());
  const c10::Device device = device_of_call(op, arguments);
  const c10::DeviceGuard guard(device);
  const bool records = current_stream(device.index()).recording();

  CpuView view;
  torch::jit::Stack call;
  for (std::size_t i = 0; i < count_of_arguments; ++i)
    call.push_back(to_cpu(view, arguments[i], device, schema.arguments()[i]));
  if (records)  // a host scalar is read once, at the capture
    for (std::size_t i = 0; i < count_of_arguments; ++i)
      if (arguments[i].isTensor() && arguments[i].toTensor().defined() && !on_pretend_device(arguments[i].toTensor()))
        call[i] = arguments[i].toTensor().clone();
  const auto kernel = [&] { op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &call); };

  if (gives_view(schema)) {
    kernel();
  } else if (gives_to_host(schema) || waits_for_host(arguments)) {
    count(device.index(), [](DeviceCounts& all) { ++all.host_reads; });
    run_and_wait(device.index(), schema.name(), accesses_of(schema, arguments), kernel);
  } else if ((kernels_are_late() || records) && !draws(schema)) {
    const auto results = run_late(op, call, view, device, accesses_of(schema, arguments));
    stack->insert(stack->end(), results.begin(), results.end());
    return;
  } else {
    const auto accesses = accesses_of(schema, arguments);
    kernels_are_late() || records ? run_and_wait(device.index(), schema.name(), accesses, kernel)
                                  : launch_kernel(device.index(), schema.name(), accesses, kernel);
  }
  view.follow_resized();
  for (const c10::IValue& result : call) stack->push_back(to_device(view, result, device, schema.name()));
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}

// LibTorch's composite kernels of these operators are not bitwise identical to the CPU's own kernels.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  for (const char* name : {"native_layer_norm", "native_layer_norm_backward", "silu_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_device>());
}

}  // namespace gantry::testing
