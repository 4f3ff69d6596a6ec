#include "gantry/comm/stage_link.h"

#include <nlohmann/json.hpp>

#include "gantry/core/error.h"

namespace gantry {
namespace {

// Metadata goes before everything else of its message, on the message's own stage and microbatch.
Tag metadata_tag(const StageMessage& message, int entry) {
  return {Tag::Kind::kMetadata, message.stage, message.microbatch, entry};
}

Tag entry_tag(const StageMessage& message, int entry) {
  const bool forward = message.direction == StageMessage::Direction::kForward;
  return {forward ? Tag::Kind::kForward : Tag::Kind::kBackward, message.stage, message.microbatch, entry};
}

torch::Tensor to_bytes(const std::string& text) {
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(text.size())}, torch::kUInt8);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(bytes.data_ptr()));
  return bytes;
}

}  // namespace

StageLink::StageLink(ProcessGroup& pipeline) : pipeline_(pipeline) {}

StageLink::Format StageLink::describe_format(const TensorDict& tensors) {
  Format format;
  for (const auto& [name, tensor] : tensors) {
    EntrySpec entry{.name = name, .spec = {}, .requires_grad = false, .absent = !tensor.defined()};
    if (tensor.defined()) {
      entry.spec = {tensor.sizes().vec(), tensor.scalar_type(), tensor.device()};
      entry.requires_grad = tensor.requires_grad();
    }
    format.push_back(std::move(entry));
  }
  return format;
}

// A backward message carries gradients of what the forward message from the stage before brought.
StageLink::Format StageLink::gradient_format(const Format& forward) {
  Format format;
  for (const auto& entry : forward)
    if (entry.requires_grad && !entry.absent) format.push_back(entry);
  return format;
}

void StageLink::send_format(const StageMessage& message, int to, const Format& format) {
  nlohmann::json description = nlohmann::json::array();
  for (const auto& entry : format)
    description.push_back({entry.name, entry.spec.shape, static_cast<int>(entry.spec.dtype), entry.requires_grad,
                           entry.absent, static_cast<int>(entry.spec.device.type())});
  const torch::Tensor bytes = to_bytes(description.dump());
  sends_.push_back(pipeline_.hand_over(torch::tensor({bytes.numel()}, torch::kInt64), to, metadata_tag(message, 0)));
  sends_.push_back(pipeline_.hand_over(bytes, to, metadata_tag(message, 1)));
}

StageLink::Format StageLink::receive_format(const StageMessage& message, int from) {
  const auto length =
      pipeline_.recv({{1}, torch::kInt64}, from, metadata_tag(message, 0)).result().item<std::int64_t>();
  const torch::Tensor bytes = pipeline_.recv({{length}, torch::kUInt8}, from, metadata_tag(message, 1)).result();
  const char* text = static_cast<const char*>(bytes.data_ptr());
  Format format;
  // Of the sender's kind of device: this rank's own one of it.
  for (const auto& entry : nlohmann::json::parse(text, text + length))
    format.push_back({entry[0],
                      {entry[1], static_cast<torch::ScalarType>(entry[2].get<int>()),
                       torch::Device(static_cast<torch::DeviceType>(entry[5].get<int>()))},
                      entry[3],
                      entry[4]});
  return format;
}

const StageLink::Format* StageLink::known_format(const StageMessage& message) const {
  // The forward of stage s - 1 says what the backward of stage s looks like, to both sides.
  const bool forward = message.direction == StageMessage::Direction::kForward;
  const auto& formats = forward ? received_formats_ : sent_gradients_;
  const auto found = formats.find({forward ? message.stage : message.stage - 1, message.shape_key});
  return found == formats.end() ? nullptr : &found->second;
}

void StageLink::post(const StageMessage& message, int from) {
  const Format* format = known_format(message);
  if (!format) return;
  auto& works = posted_[{message.direction, message.stage, message.microbatch}];
  if (!works.empty() || format->empty()) return;
  for (std::size_t i = 0; i < format->size(); ++i)
    works.push_back((*format)[i].absent
                        ? Work()
                        : pipeline_.recv((*format)[i].spec, from, entry_tag(message, static_cast<int>(i))));
}

void StageLink::send(const StageMessage& message, int to, const TensorDict& tensors) {
  if (message.direction == StageMessage::Direction::kForward) {
    const Key key{message.stage, message.shape_key};
    if (!sent_formats_.contains(key)) {
      const Format format = describe_format(tensors);
      send_format(message, to, format);
      sent_formats_[key] = format;
      sent_gradients_[key] = gradient_format(format);
    }
    send_entries(message, to, sent_formats_[key], tensors);
  } else {
    const auto found = received_gradients_.find({message.stage - 1, message.shape_key});
    if (found == received_gradients_.end())
      throw InternalError({"stage link", "a backward is sent before its forward came", "", ""});
    send_entries(message, to, found->second, tensors);
  }
}

void StageLink::send_entries(const StageMessage& message, int to, const Format& format, const TensorDict& tensors) {
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i].absent) continue;
    const torch::Tensor tensor = tensors.get(format[i].name);
    sends_.push_back(pipeline_.hand_over(tensor.defined() ? tensor.detach().contiguous() : tensor, to,
                                         entry_tag(message, static_cast<int>(i))));
  }
}

TensorDict StageLink::receive(const StageMessage& message, int from) {
  const bool forward = message.direction == StageMessage::Direction::kForward;
  if (forward && !known_format(message)) {
    const Key key{message.stage, message.shape_key};
    received_formats_[key] = receive_format(message, from);
    received_gradients_[key] = gradient_format(received_formats_[key]);
  }
  const Format* format = known_format(message);
  if (!format) throw InternalError({"stage link", "a backward is awaited before its forward was sent", "", ""});
  post(message, from);
  std::vector<Work> works = std::move(posted_[{message.direction, message.stage, message.microbatch}]);
  posted_.erase({message.direction, message.stage, message.microbatch});

  TensorDict received;
  for (std::size_t i = 0; i < format->size(); ++i) {
    const EntrySpec& entry = (*format)[i];
    torch::Tensor tensor = works[i].result();
    if (forward && tensor.defined() && entry.requires_grad) tensor = tensor.detach().requires_grad_();
    received.set(entry.name, tensor);
  }
  return received;
}

void StageLink::flush() {
  for (auto& work : sends_) work.wait();
  sends_.clear();
}

void StageLink::collect() {
  std::erase_if(sends_, [](Work& work) { return work.done(); });
}

}  // namespace gantry
