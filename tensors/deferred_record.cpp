#include "gantry/tensors/deferred_record.h"

#include <map>
#include <mutex>

#include "gantry/tensors/libtorch.h"

namespace gantry::deferred {
namespace {

struct Entry {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being used again
  Record record;
};

std::mutex table_mutex;

std::map<c10::StorageImpl*, Entry>& table() {
  static auto* entries =
      new std::map<c10::StorageImpl*, Entry>();  // never destroyed: tensors may outlive static objects
  return *entries;
}

c10::StorageImpl* key_of(const torch::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

void drop_dead_entries() {
  static std::size_t next = 64;
  if (table().size() < next) return;
  std::erase_if(table(), [](const auto& item) { return item.second.storage.expired(); });
  next = 2 * table().size() + 64;
}

}  // namespace

Geometry geometry_of(const torch::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.scalar_type()};
}

bool is_recorded(const torch::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const std::lock_guard lock(table_mutex);
  return table().contains(key_of(tensor));
}

bool has_steps(const torch::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const std::lock_guard lock(table_mutex);
  const auto found = table().find(key_of(tensor));
  return found != table().end() && (!found->second.record.steps.empty() || found->second.record.base.defined());
}

bool is_full(const torch::Tensor& tensor) {
  const std::lock_guard lock(table_mutex);
  const Geometry& full = table().at(key_of(tensor)).record.full;
  return tensor.sizes() == full.sizes && tensor.strides() == full.strides && tensor.storage_offset() == full.offset;
}

void start_record(const torch::Tensor& tensor, torch::Tensor base) {
  put_record(tensor, {.full = geometry_of(tensor), .base = std::move(base)});
}

void add_step(const torch::Tensor& written, Step step) {
  const std::lock_guard lock(table_mutex);
  table().at(key_of(written)).record.steps.push_back(std::move(step));
}

std::optional<Record> take_record(const torch::Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  const std::lock_guard lock(table_mutex);
  const auto found = table().find(key_of(tensor));
  if (found == table().end()) return std::nullopt;
  std::optional<Record> record = std::move(found->second.record);
  table().erase(found);
  return record;
}

void put_record(const torch::Tensor& tensor, Record record) {
  const std::lock_guard lock(table_mutex);
  drop_dead_entries();
  table().insert_or_assign(key_of(tensor), Entry{tensor.storage().getWeakStorageImpl(), std::move(record)});
}

}  // namespace gantry::deferred
