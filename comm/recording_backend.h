// A backend whose groups note every operation in the rank's flight recorder. It hands everything on to the backend that
// it wraps, name, device and failures included.
#pragma once

#include <functional>
#include <memory>

#include "gantry/comm/device_backend.h"
#include "gantry/comm/recorder/rank_recorder.h"

namespace gantry {

class RecordingBackend final : public DeviceBackend {
 public:
  // `inner` is not owned.
  RecordingBackend(Backend& inner, std::shared_ptr<recorder::RankRecorder> recorder)
      : inner_(inner), recorder_(std::move(recorder)) {}

  const char* name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  torch::Device device() const override { return device_of(inner_); }
  std::shared_ptr<DeviceEnd> take_end() const override { return take_end_from(inner_); }
  std::unique_ptr<ProcessGroup> make_group(const std::string& label, const std::vector<int>& ranks) override;
  void abort(const std::string& reason) override { inner_.abort(reason); }
  bool has_ended(int rank) const override { return inner_.has_ended(rank); }

 private:
  Backend& inner_;
  std::shared_ptr<recorder::RankRecorder> recorder_;
};

// Runs the body of a rank with a world over such a backend, and notes how it ends; with `world` itself where the job is
// not recorded.
void run_recorded(World& world, const std::function<void(World&)>& body);

}  // namespace gantry
