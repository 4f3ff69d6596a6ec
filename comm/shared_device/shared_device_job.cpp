#include "gantry/comm/shared_device/shared_device_job.h"

#include <exception>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {

SharedDeviceJob::SharedDeviceJob(std::shared_ptr<ProcessEngine> engine, DeviceSharing& sharing)
    : engine_(std::move(engine)), sharing_(sharing), device_(sharing.device()), guard_(device_.type()) {}

SharedDeviceJob::~SharedDeviceJob() {
  // After a failure, a stream may wait for a process that has ended.
  if (engine_->failures().failed() || std::uncaught_exceptions() > 0) return;
  try {
    let_go();
  } catch (const std::exception&) {
    // The device is broken; its users have got the error.
  }
}

void SharedDeviceJob::keep(std::shared_ptr<ProcessOperation> send) {
  const std::lock_guard lock(sends_mutex_);
  while (!sends_.empty() && sends_.front()->done()) sends_.pop_front();
  sends_.push_back(std::move(send));
}

void SharedDeviceJob::await_sends() {
  const std::lock_guard lock(sends_mutex_);
  for (; !sends_.empty(); sends_.pop_front()) sends_.front()->wait();
}

void SharedDeviceJob::let_go() {
  synchronize();
  for (const auto& [where, opened] : opened_) sharing_.close_memory(opened.memory);
  opened_.clear();
  opened_events_.clear();
}

bool SharedDeviceJob::holds(const torch::Device& device, const char* call) const {
  if (device.is_cpu()) return false;
  if (device.type() != device_.type() || (device.has_index() && device.index() != device_.index()))
    throw UsageError({call, "the tensor is on " + device.str(), "a tensor on " + device_.str() + ", this rank's device",
                      "move it there, or to the CPU"});
  return true;
}

void SharedDeviceJob::record_use(const c10::Storage& storage, const c10::Stream& stream) const {
  if (storage && storage.nbytes() > 0) guard_.recordDataPtrOnStream(storage.data_ptr(), stream);
}

char* SharedDeviceJob::reach(int rank, const SharedPlace& place) {
  if (rank == engine_->rank()) return reinterpret_cast<char*>(place.begin) + place.offset;
  const std::pair where(rank, place.begin);
  auto found = opened_.find(where);
  if (found != opened_.end() && found->second.allocation != place.allocation) {
    // The process has freed that allocation, and has another one at the same address.
    synchronize();
    sharing_.close_memory(found->second.memory);
    opened_.erase(found);
    found = opened_.end();
  }
  if (found == opened_.end()) {
    try {
      found = opened_.emplace(where, Opened{place.allocation, sharing_.open_memory(place.allocation)}).first;
    } catch (const ResourceError& error) {
      throw ResourceError({engine_->describe_rank(engine_->rank()),
                           fmt::format("memory of {} cannot be opened: {}", engine_->describe_rank(rank), error.what()),
                           "ranks in one IPC namespace and one process namespace",
                           "start all ranks in one container, or each with --ipc=host --pid=host"});
    }
  }
  return found->second.memory + place.offset;
}

SharedSignal SharedDeviceJob::signal(const c10::Stream& stream) {
  auto found = events_.find(stream.id());
  if (found == events_.end())
    found = events_.emplace(stream.id(), OwnEvent{std::ssize(events_), sharing_.make_event()}).first;
  found->second.event->record(stream);
  return {found->second.event->handle(), found->second.number};
}

void SharedDeviceJob::follow(const c10::Stream& stream, int rank, const SharedSignal& signal) {
  if (rank == engine_->rank()) {
    for (const auto& [id, own] : events_)
      if (own.number == signal.number) own.event->block(stream);
    return;
  }
  auto& event = opened_events_[{rank, signal.number}];
  if (!event) event = sharing_.open_event(signal.event);
  event->block(stream);
}

torch::Tensor SharedDeviceJob::at(char* memory, std::int64_t elements, torch::ScalarType type) const {
  return at::for_blob(memory, {elements})
      .options(torch::dtype(type).device(device_))
      .target_device(device_)
      .make_tensor();
}

}  // namespace gantry
