#include "gantry/tensors/memory_meter.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace gantry {
namespace {

// The count of one rank. Changed by any thread that frees its memory.
struct Count {
  std::atomic<std::int64_t> bytes{0}, peak{0};
  void add(std::int64_t more) {
    const std::int64_t now = bytes.fetch_add(more) + more;
    std::int64_t highest = peak.load();
    while (now > highest && !peak.compare_exchange_weak(highest, now)) {
    }
  }
};

// The owner of every counted block. Divided into parts with a mutex each, so that rank threads rarely contend.
class Owners {
 public:
  void allocated(void* block, std::int64_t bytes, const std::shared_ptr<Count>& count) {
    Part& part = part_of(block);
    const std::lock_guard lock(part.mutex);
    auto& [owner, counted] = part.blocks[block];
    if (owner) owner->add(-counted);  // a thread without a meter has freed it
    owner = count;
    counted = bytes;
    count->add(bytes);
  }
  void freed(void* block) {
    Part& part = part_of(block);
    const std::lock_guard lock(part.mutex);
    const auto found = part.blocks.find(block);
    if (found == part.blocks.end()) return;
    found->second.first->add(-found->second.second);
    part.blocks.erase(found);
  }

 private:
  struct Part {
    std::mutex mutex;
    std::unordered_map<void*, std::pair<std::shared_ptr<Count>, std::int64_t>> blocks;
  };
  Part& part_of(void* block) { return parts_[(reinterpret_cast<std::uintptr_t>(block) >> 6) % parts_.size()]; }
  std::array<Part, 64> parts_;
};

// Never destroyed, because tensors of static lifetime are freed later.
Owners& owners() {
  static auto* all = new Owners;
  return *all;
}

// Per thread; threads that work for it have its reporter too.
thread_local c10::MemoryReportingInfoBase* secondary_report = nullptr;

class Reporter final : public c10::MemoryReportingInfoBase {
 public:
  // `count`: null for a thread whose allocations are not counted.
  Reporter(std::shared_ptr<Count> count, c10::DeviceType counted) : count_(std::move(count)), counted_(counted) {}
  void reportMemoryUsage(void* block, std::int64_t bytes, std::size_t allocated, std::size_t reserved,
                         c10::Device device) override {
    if (!count_ || device.type() == counted_) {
      if (bytes <= 0)
        owners().freed(block);
      else if (count_)
        owners().allocated(block, bytes, count_);
    }
    if (secondary_report) secondary_report->reportMemoryUsage(block, bytes, allocated, reserved, device);
  }
  // Only the CPU's allocator asks. While this is true, it keeps the sizes of allocations, and warns of frees of other
  // memory.
  bool memoryProfilingEnabled() const override { return count_ != nullptr; }

 private:
  std::shared_ptr<Count> count_;
  const c10::DeviceType counted_;
};

}  // namespace

class MemoryMeter::State {
 public:
  explicit State(c10::DeviceType counted)
      : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(count, counted)) {}
  std::shared_ptr<Count> count = std::make_shared<Count>();

 private:
  c10::DebugInfoGuard guard_;
};

MemoryMeter::MemoryMeter(c10::DeviceType counted) : state_(std::make_unique<State>(counted)) {}
MemoryMeter::~MemoryMeter() = default;
std::int64_t MemoryMeter::bytes() const { return state_->count->bytes; }
std::int64_t MemoryMeter::peak_bytes() const { return state_->count->peak; }
void MemoryMeter::reset_peak() { state_->count->peak = state_->count->bytes.load(); }

FreesCounted::FreesCounted()
    : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(nullptr, c10::DeviceType::CPU)) {}

void MemoryMeter::set_secondary_reporter(c10::MemoryReportingInfoBase* other) { secondary_report = other; }

}  // namespace gantry
