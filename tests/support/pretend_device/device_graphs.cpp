#include "device_graphs.h"

#include <atomic>
#include <memory>

#include "device_work.h"
#include "gantry/tensors/device_graph.h"
#include "pretend_device.h"

namespace gantry::testing {
namespace {

class PretendGraph final : public DeviceGraph {
 public:
  void begin(GraphPool pool) override {
    const int device = c10::impl::getDeviceGuardImpl(kPretendType)->getDevice().index();
    stream_ = &current_stream(device);
    TORCH_CHECK(stream_->number() != 0, "graphs must be recorded on another stream than the default one");
    TORCH_CHECK(!stream_->recording(), "stream ", stream_->number(), " is recorded already");
    static std::atomic<int> pools{0};
    recording_->pool = pool.first > 0 ? static_cast<int>(pool.first) : ++pools;
    stream_->record_into(recording_.get());
  }
  void end() override {
    TORCH_CHECK(stream_ && stream_->recording() == recording_.get(), "the end of a recording that has not begun");
    stream_->record_into(nullptr);
  }
  void replay() override {
    PretendStream& stream = current_stream(stream_->device());
    refuse_while_recording(stream, "a replay");
    for (const RecordedKernel& kernel : recording_->kernels)
      race_checker(stream.device()).launch(stream.number(), kernel.accesses, kernel.what);
    count(stream.device(), [](DeviceCounts& all) { ++all.replays; });
    const auto run = [recording = recording_] {
      for (const RecordedKernel& kernel : recording->kernels) kernel.run();
    };
    if (kernels_are_late()) return stream.submit(run);
    if (!stream.idle()) stream.wait();
    run();
  }
  GraphPool pool() const override { return {static_cast<unsigned long long>(recording_->pool), 0}; }

 private:
  // Shared with replays in flight.
  std::shared_ptr<GraphRecording> recording_ = std::make_shared<GraphRecording>();
  PretendStream* stream_ = nullptr;
};

[[maybe_unused]] const bool registered_graphs = register_device_graphs(
    kPretendType, []() -> std::unique_ptr<DeviceGraph> { return std::make_unique<PretendGraph>(); });

}  // namespace

void refuse_while_recording(PretendStream& stream, const std::string& what) {
  TORCH_CHECK(!stream.recording(), "operation not permitted when stream is capturing: ", what);
}

}  // namespace gantry::testing
