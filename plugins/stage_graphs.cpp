#include "gantry/plugins/stage_graphs.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "gantry/core/error.h"
#include "gantry/nn/dropout.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::int64_t kPlainCalls = 2;
constexpr std::size_t kMostKeys = 4;  // per stage; each key has its own memory

void refuse_dropout(torch::nn::Module& model) {
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* dropout = item.value()->as<nn::DropoutImpl>();
    if (dropout && dropout->p() > 0)
      throw ConfigError(
          {"train.device_graphs",
           fmt::format("{} has dropout {}, but a captured CUDA graph would repeat the same mask in every step",
                       item.key(), dropout->p()),
           "a model without dropout", "set its dropout to 0, or remove train.device_graphs"});
  }
}

}  // namespace

StageGraphs::StageGraphs(const StageModule& module, torch::Device device) : module_(module), device_(device) {
  if (!has_device_graphs(device.type()))
    throw ConfigError({"train.device_graphs",
                       "graphs are not supported on " + c10::DeviceTypeName(device.type(), /*lower_case=*/true) +
                           ", where the ranks compute",
                       "devices that can capture graphs", "remove train.device_graphs"});
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (guard.getStream(device) == guard.getDefaultStream(device))
    throw ConfigError({"train.device_graphs",
                       "the rank computes on its device's default stream, which cannot be captured",
                       "a separate stream, which ranks with NCCL have", "set comm.backend to nccl"});
  refuse_dropout(module.module());
}

StageGraphs::Places StageGraphs::places() const {
  Places all;
  for (const HeldTensor& held : module_.parameters) {
    const torch::Tensor& gradient = held.tensor.grad();
    all.push_back(held.tensor.const_data_ptr());
    all.push_back(held.tensor.requires_grad() ? held.tensor.const_data_ptr() : nullptr);
    all.push_back(gradient.defined() ? gradient.const_data_ptr() : nullptr);
  }
  return all;
}

void StageGraphs::begin() {
  ++call_;
  Places now = places();
  if (now != places_) {
    shape_of_.clear();
    shapes_.clear();
  }
  places_ = std::move(now);
  for (auto& [stage, shapes] : shapes_)
    for (auto& [key, shape] : shapes) {
      shape.free.clear();
      for (const auto& recording : shape.recordings) shape.free.push_back(recording.get());
    }
}

StageRecording* StageGraphs::take(int stage, const std::string& key) {
  auto& shapes = shapes_[stage];
  if (shapes.size() >= kMostKeys && !shapes.contains(key)) return nullptr;
  Shape& shape = shapes[key];
  if (std::exchange(shape.last_call, call_) != call_) ++shape.calls;
  if (shape.calls <= kPlainCalls) return nullptr;
  if (shape.free.empty()) {
    std::vector<torch::Tensor> parameters;
    for (const HeldTensor& held : module_.parameters) {
      const auto& stages = held.placement.stages;
      if (std::find(stages.begin(), stages.end(), stage) != stages.end()) parameters.push_back(held.tensor);
    }
    shape.recordings.push_back(std::make_unique<StageRecording>(stage, std::move(parameters), device_));
    shape.free.push_back(shape.recordings.back().get());
    shape_of_[shape.free.back()] = &shape;
  }
  StageRecording* taken = shape.free.back();
  shape.free.pop_back();
  return taken;
}

void StageGraphs::give_back(StageRecording& recording) { shape_of_.at(&recording)->free.push_back(&recording); }

}  // namespace gantry
