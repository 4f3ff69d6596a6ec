#include "gantry/tensors/use_watch.h"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "gantry/core/error.h"
#include "gantry/tensors/tensors_of_value.h"

namespace gantry {
namespace {

constexpr auto kWatchedKey = c10::DispatchKey::DeferredInit;

struct Watcher {
  std::weak_ptr<UseWatch> watch;
  int number;
};

// Guarded by the mutex, because ranks can be threads.
struct WatchTable {
  std::shared_mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Watcher> by_storage;
  std::unordered_map<const c10::StorageImpl*, std::string> partial;  // error text for norms
};

WatchTable& watch_table() {
  static WatchTable table;
  return table;
}

// Gives access to the keys of a tensor, which are protected. LibTorch has no function that adds this key.
struct KeysOfTensor : c10::TensorImpl {
  static c10::DispatchKeySet& of(c10::TensorImpl& tensor) { return tensor.*(&KeysOfTensor::key_set_); }
};

using Uses = std::map<std::shared_ptr<UseWatch>, std::set<int>>;
using OnTensor = std::function<void(const torch::Tensor&)>;

// Calls `call` for the tensors in the last `count` values of the stack.
void for_tensors(const torch::jit::Stack& stack, std::size_t count, const OnTensor& call) {
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) for_each_tensor_of(stack[i], call);
}

std::optional<Watcher> watcher_of(const torch::Tensor& tensor) {
  WatchTable& table = watch_table();
  const std::shared_lock lock(table.mutex);
  const auto found = table.by_storage.find(tensor.storage().unsafeGetStorageImpl());
  return found == table.by_storage.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> partial_error(const torch::Tensor& tensor) {
  WatchTable& table = watch_table();
  const std::shared_lock lock(table.mutex);
  const auto found = table.partial.find(tensor.storage().unsafeGetStorageImpl());
  return found == table.partial.end() ? std::nullopt : std::optional(found->second);
}

bool has_memory(const torch::Tensor& tensor) { return tensor.defined() && tensor.has_storage(); }

}  // namespace

WatchedMemory::WatchedMemory(const torch::Tensor& over, std::weak_ptr<UseWatch> watch, int number)
    : storage_(over.storage().unsafeGetStorageImpl()) {
  WatchTable& table = watch_table();
  const std::unique_lock lock(table.mutex);
  table.by_storage.insert_or_assign(storage_, Watcher{std::move(watch), number});
}

WatchedMemory::~WatchedMemory() {
  WatchTable& table = watch_table();
  const std::unique_lock lock(table.mutex);
  table.by_storage.erase(storage_);
}

PartialMemory::PartialMemory(const torch::Tensor& tensor, std::string error)
    : storage_(tensor.storage().getWeakStorageImpl()) {
  notice_uses(tensor);
  WatchTable& table = watch_table();
  const std::unique_lock lock(table.mutex);
  table.partial.insert_or_assign(storage_._unsafe_get_target(), std::move(error));
}

PartialMemory::~PartialMemory() {
  WatchTable& table = watch_table();
  const std::unique_lock lock(table.mutex);
  table.partial.erase(storage_._unsafe_get_target());
}

void notice_uses(const torch::Tensor& tensor) {
  c10::DispatchKeySet& keys = KeysOfTensor::of(*tensor.unsafeGetTensorImpl());
  keys = keys.add(kWatchedKey);
}

bool notices_uses(const torch::Tensor& tensor) { return tensor.key_set().has(kWatchedKey); }

void tell_watches(const torch::jit::Stack& stack, std::size_t arguments) {
  Uses uses;
  for_tensors(stack, arguments, [&](const torch::Tensor& tensor) {
    if (!has_memory(tensor) || !notices_uses(tensor)) return;
    const auto watcher = watcher_of(tensor);
    if (!watcher) return;
    if (auto watch = watcher->watch.lock()) uses[std::move(watch)].insert(watcher->number);
  });
  const c10::impl::ExcludeDispatchKeyGuard exclude(kWatchedKey);
  for (const auto& [watch, memories] : uses) watch->before_use({memories.begin(), memories.end()});
}

void refuse_partial_norms(const std::string& operation, const torch::jit::Stack& stack, std::size_t arguments) {
  static const std::set<std::string> kNorms = {"aten::norm", "aten::linalg_vector_norm", "aten::linalg_norm",
                                               "aten::_foreach_norm"};
  if (!kNorms.contains(operation)) return;
  for_tensors(stack, arguments, [](const torch::Tensor& tensor) {
    if (!has_memory(tensor) || !notices_uses(tensor)) return;
    if (const auto error = partial_error(tensor)) throw UsageError(*error);
  });
}

void notice_views(const torch::jit::Stack& stack, std::size_t returns) {
  for_tensors(stack, returns, [](const torch::Tensor& tensor) {
    if (has_memory(tensor) && !notices_uses(tensor) && watcher_of(tensor)) notice_uses(tensor);
  });
}

}  // namespace gantry
