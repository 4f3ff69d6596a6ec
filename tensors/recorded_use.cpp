#include "gantry/tensors/recorded_use.h"

#include <algorithm>
#include <mutex>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensors_of_value.h"

namespace gantry {
namespace {

// By device, because a callback on an autograd thread has no other way to find its object.
struct Recorded {
  std::mutex mutex;
  std::unordered_map<c10::Device, RecordedUse*> by_device;
};

Recorded& recorded() {
  static auto* all = new Recorded;  // never destroyed: threads may outlive main
  return *all;
}

RecordedUse* recorded_use_on(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu() || !tensor.has_storage()) return nullptr;
  const auto found = recorded().by_device.find(tensor.device());
  return found == recorded().by_device.end() ? nullptr : found->second;
}

bool draws_numbers(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (name == "gantry::draw_" || name == "aten::native_dropout") return true;
  const auto schema = function.operator_schema();
  if (!schema) return false;
  const auto& arguments = schema->arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& one) { return one.name() == "generator"; });
}

}  // namespace

RecordedUse::RecordedUse(torch::Device device) : device_(device) {
  {
    const std::lock_guard lock(recorded().mutex);
    if (!recorded().by_device.emplace(device, this).second)
      throw UsageError({"device graphs", "two threads capture graphs on " + device.str() + " at the same time",
                        "one device per thread", ""});
  }
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&RecordedUse::begin, &RecordedUse::end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
}

RecordedUse::~RecordedUse() {
  at::removeCallback(callback_);
  const std::lock_guard lock(recorded().mutex);
  recorded().by_device.erase(device_);
}

// A storage that is first seen as a result was allocated by the operator.
void RecordedUse::see(const torch::Tensor& tensor, bool is_given) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (seen_.emplace(storage, tensor.storage().getWeakStorageImpl()).second && is_given)
    used_.push_back(tensor.storage());
}

std::unique_ptr<at::ObserverContext> RecordedUse::begin(const at::RecordFunction& function) {
  const std::lock_guard lock(recorded().mutex);
  const bool draws = draws_numbers(function);
  for (const c10::IValue& value : function.inputs())
    for_each_tensor_of(value, [&](const torch::Tensor& tensor) {
      RecordedUse* use = recorded_use_on(tensor);
      if (!use) return;
      use->see(tensor, /*is_given=*/true);
      use->draws_ = use->draws_ || draws;
    });
  return nullptr;
}

void RecordedUse::end(const at::RecordFunction& function, at::ObserverContext*) {
  const std::lock_guard lock(recorded().mutex);
  for (const c10::IValue& value : function.outputs())
    for_each_tensor_of(value, [](const torch::Tensor& tensor) {
      if (RecordedUse* use = recorded_use_on(tensor)) use->see(tensor, /*is_given=*/false);
    });
}

}  // namespace gantry
