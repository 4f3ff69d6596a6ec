#include "late_kernels.h"

#include <algorithm>
#include <cstring>

#include "device_work.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {
namespace {

c10::IValue with_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& change) {
  if (value.isTensor()) return value.toTensor().defined() ? change(value.toTensor()) : value.toTensor();
  if (value.isTensorList()) {
    c10::List<at::Tensor> all;
    for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(tensor.defined() ? change(tensor) : tensor);
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> all;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      all.push_back(tensor && tensor->defined() ? std::optional(change(*tensor)) : tensor);
    return all;
  }
  return value;
}

torch::jit::Stack with_tensors(const torch::jit::Stack& call,
                               const std::function<at::Tensor(const at::Tensor&)>& change) {
  torch::jit::Stack changed;
  for (const c10::IValue& value : call) changed.push_back(with_tensors(value, change));
  return changed;
}

at::Tensor meta_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

at::Tensor zeros_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).zero_();
}

// Returns tensors with the shapes of the results, from the operator's meta kernel or, if it has none, from a
// run on zeros.
torch::jit::Stack shapes_of(const c10::OperatorHandle& op, const torch::jit::Stack& call) {
  try {
    torch::jit::Stack trial = with_tensors(call, meta_of);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &trial);
    return trial;
  } catch (const c10::Error&) {
    torch::jit::Stack trial = with_tensors(call, zeros_of);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &trial);
    return trial;
  }
}

bool writes_only(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) { return result.alias_info() && result.alias_info()->isWrite(); });
}

// The results of an operator that only writes to its arguments, which must already have the right size.
std::vector<c10::IValue> written_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& call,
                                           const CpuView& view, c10::Device device) {
  std::vector<c10::IValue> results;
  if (schema.returns().empty()) return results;
  for (std::size_t i = 0; i < call.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias && alias->isWrite() && call[i].isTensor())
      results.emplace_back(view.back(call[i].toTensor(), device, schema.name()));
  }
  return results;
}

// Returns the call. Outputs without elements are first resized to the size of the results.
torch::jit::Stack with_sized_outputs(const c10::OperatorHandle& op, torch::jit::Stack call, const CpuView& view,
                                     CpuView& sized, c10::Device device, std::vector<Access>& accesses) {
  const c10::FunctionSchema& schema = op.schema();
  std::vector<std::size_t> written;
  bool is_empty = false;
  for (std::size_t i = 0; i < call.size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (!alias || !alias->isWrite() || !call[i].isTensor()) continue;
    written.push_back(i);
    is_empty = is_empty || call[i].toTensor().numel() == 0;
  }
  if (!is_empty) return call;
  const torch::jit::Stack shapes = shapes_of(op, call);
  for (std::size_t k = 0; k < written.size() && k < shapes.size(); ++k) {
    const at::Tensor& output = call[written[k]].toTensor();
    if (output.sizes() == shapes[k].toTensor().sizes()) continue;
    const at::Tensor there = view.back(output, device, schema.name());
    there.resize_(shapes[k].toTensor().sizes());
    call[written[k]] = sized.of(there);
    accesses.push_back(access_of(there, /*writes=*/true));
  }
  return call;
}

}  // namespace

bool draws(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return schema.name() == "aten::native_dropout" ||
         std::any_of(arguments.begin(), arguments.end(), [](const auto& one) { return one.name() == "generator"; });
}

std::vector<c10::IValue> run_late(const c10::OperatorHandle& op, const torch::jit::Stack& call, CpuView& view,
                                  c10::Device device, std::vector<Access> accesses) {
  const c10::FunctionSchema& schema = op.schema();
  const auto run = [op](torch::jit::Stack& stack) {
    const at::NoGradGuard no_grad;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  };
  if (writes_only(schema)) {
    CpuView sized;
    const torch::jit::Stack full = with_sized_outputs(op, call, view, sized, device, accesses);
    launch_kernel(device.index(), schema.name(), accesses, [run, full] {
      torch::jit::Stack stack = full;
      run(stack);
    });
    return written_arguments(schema, call, view, device);
  }
  std::vector<c10::IValue> results;
  torch::jit::Stack targets;  // the CPU's views of the results
  for (const c10::IValue& shape : shapes_of(op, call))
    results.push_back(with_tensors(shape, [&](const at::Tensor& like) {
      at::Tensor made = new_device_tensor(device, like.sizes(), like.strides(), like.scalar_type());
      accesses.push_back(access_of(made, /*writes=*/true));
      return made;
    }));
  for (const c10::IValue& result : results)
    targets.push_back(with_tensors(result, [&](const at::Tensor& made) { return view.of(made); }));
  launch_kernel(device.index(), schema.name(), accesses, [run, targets, call] {
    torch::jit::Stack stack = call;
    run(stack);
    for (std::size_t i = 0; i < targets.size(); ++i) {
      if (targets[i].isTensor() && targets[i].toTensor().defined()) targets[i].toTensor().copy_(stack[i].toTensor());
      if (!targets[i].isTensorList()) continue;
      const auto made = targets[i].toTensorVector(), gave = stack[i].toTensorVector();
      for (std::size_t j = 0; j < made.size(); ++j)
        if (made[j].defined()) made[j].copy_(gave[j]);
    }
  });
  return results;
}

}  // namespace gantry::testing
