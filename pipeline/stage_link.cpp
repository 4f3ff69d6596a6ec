#include "gantry/pipeline/stage_link.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

// Metadata precedes the rest of its message, with the same stage and microbatch.
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

StageLink::Format StageLink::format_of(const TensorDict& tensors) {
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

// Compares the tensors with a format, without calling format_of() for each message.
bool StageLink::fits(const Format& format, const TensorDict& tensors) {
  return std::equal(format.begin(), format.end(), tensors.begin(), tensors.end(),
                    [](const EntrySpec& entry, const TensorDict::Entry& given) {
                      const auto& [name, tensor] = given;
                      if (name != entry.name || tensor.defined() == entry.absent) return false;
                      return entry.absent ||
                             (tensor.scalar_type() == entry.spec.dtype && tensor.sizes() == entry.spec.shape &&
                              tensor.device() == entry.spec.device && tensor.requires_grad() == entry.requires_grad);
                    });
}

// A message without tensors cannot signal a new format.
bool StageLink::can_tell(const Format& format) {
  return std::any_of(format.begin(), format.end(), [](const EntrySpec& entry) { return !entry.absent; });
}

// A backward message carries the gradients of the tensors in the forward message.
StageLink::DescriptionPtr StageLink::describe(Format forward) {
  Description description{std::move(forward), {}};
  for (const auto& entry : description.forward)
    if (entry.requires_grad && !entry.absent) description.backward.push_back(entry);
  return std::make_shared<const Description>(std::move(description));
}

void StageLink::send_description(const StageMessage& message, int to, const Format& format) {
  nlohmann::json description = nlohmann::json::array();
  for (const auto& entry : format)
    description.push_back({entry.name, entry.spec.shape, static_cast<int>(entry.spec.dtype), entry.requires_grad,
                           entry.absent, static_cast<int>(entry.spec.device.type())});
  const torch::Tensor bytes = to_bytes(description.dump());
  sends_.push_back(pipeline_.hand_over(torch::tensor({bytes.numel()}, torch::kInt64), to, metadata_tag(message, 0)));
  sends_.push_back(pipeline_.hand_over(bytes, to, metadata_tag(message, 1)));
}

StageLink::DescriptionPtr StageLink::receive_description(const StageMessage& message, int from) {
  const torch::Tensor number = pipeline_.recv({{1}, torch::kInt64}, from, metadata_tag(message, 0)).result();
  const std::int64_t length = *number.const_data_ptr<std::int64_t>();
  const torch::Tensor bytes = pipeline_.recv({{length}, torch::kUInt8}, from, metadata_tag(message, 1)).result();
  const char* text = static_cast<const char*>(bytes.data_ptr());
  Format format;
  // The type of the device is the sender's, its index is this rank's.
  for (const auto& entry : nlohmann::json::parse(text, text + length))
    format.push_back({entry[0],
                      {entry[1], static_cast<torch::ScalarType>(entry[2].get<int>()),
                       torch::Device(static_cast<torch::DeviceType>(entry[5].get<int>()))},
                      entry[3],
                      entry[4]});
  return describe(std::move(format));
}

const StageLink::Format* StageLink::expected_format(const StageMessage& message) const {
  if (message.direction == StageMessage::Direction::kForward) {
    const auto found = received_.find(key_of(message));
    return found == received_.end() ? nullptr : &found->second->forward;
  }
  // The forward of stage s - 1 determines the format of the backward of stage s, on both sides.
  const auto found = awaited_backward_.find({message.stage - 1, message.microbatch});
  return found == awaited_backward_.end() ? nullptr : &found->second->backward;
}

void StageLink::post(const StageMessage& message, int from) {
  const Format* format = expected_format(message);
  if (!format || !can_tell(*format)) return;
  auto& works = posted_[{message.direction, message.stage, message.microbatch}];
  if (!works.empty()) return;
  for (std::size_t i = 0; i < format->size(); ++i)
    works.push_back((*format)[i].absent
                        ? Work()
                        : pipeline_.recv((*format)[i].spec, from, entry_tag(message, static_cast<int>(i))));
}

void StageLink::send(const StageMessage& message, int to, const TensorDict& tensors) {
  if (message.direction == StageMessage::Direction::kForward) return send_forward(message, to, tensors);
  const auto found = owed_backward_.find({message.stage - 1, message.microbatch});
  if (found == owed_backward_.end())
    throw InternalError({"stage link", "a backward is sent before its forward arrived", "", ""});
  send_entries(message, to, found->second->backward, tensors);
  owed_backward_.erase(found);
}

void StageLink::send_forward(const StageMessage& message, int to, const TensorDict& tensors) {
  DescriptionPtr& description = sent_[key_of(message)];
  if (!description || !can_tell(description->forward) || !fits(description->forward, tensors)) {
    if (description) send_entries(message, to, description->forward, {});
    description = describe(format_of(tensors));
    send_description(message, to, description->forward);
  }
  awaited_backward_[{message.stage, message.microbatch}] = description;
  send_entries(message, to, description->forward, tensors);
}

// Entries that `tensors` lacks are sent as absent.
void StageLink::send_entries(const StageMessage& message, int to, const Format& format, const TensorDict& tensors) {
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i].absent) continue;
    const torch::Tensor tensor = tensors.get(format[i].name);
    sends_.push_back(pipeline_.hand_over(tensor.defined() ? tensor.detach().contiguous() : tensor, to,
                                         entry_tag(message, static_cast<int>(i))));
  }
}

// Returns one tensor per expected entry.
std::vector<torch::Tensor> StageLink::receive_entries(const StageMessage& message, int from) {
  post(message, from);
  const auto posted = posted_.find({message.direction, message.stage, message.microbatch});
  std::vector<torch::Tensor> tensors(expected_format(message)->size());
  if (posted == posted_.end()) return tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i] = posted->second[i].result();
  posted_.erase(posted);
  return tensors;
}

TensorDict StageLink::receive(const StageMessage& message, int from) {
  const bool forward = message.direction == StageMessage::Direction::kForward;
  const Format* format = expected_format(message);
  if (!forward && !format)
    throw InternalError({"stage link", "a backward is awaited before its forward was sent", "", ""});
  std::vector<torch::Tensor> tensors;
  if (format) tensors = receive_entries(message, from);
  const auto came = [](const torch::Tensor& tensor) { return tensor.defined(); };
  // Another format, or the first message.
  if (forward && std::none_of(tensors.begin(), tensors.end(), came)) {
    received_[key_of(message)] = receive_description(message, from);
    format = expected_format(message);
    tensors = receive_entries(message, from);
  }
  TensorDict received;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool leaf = forward && tensors[i].defined() && (*format)[i].requires_grad;
    received.set((*format)[i].name, leaf ? tensors[i].detach().requires_grad_() : tensors[i]);
  }
  if (forward)
    owed_backward_[{message.stage, message.microbatch}] = received_[key_of(message)];
  else
    awaited_backward_.erase({message.stage - 1, message.microbatch});
  return received;
}

void StageLink::flush() {
  for (auto& work : sends_) work.wait();
  sends_.clear();
  awaited_backward_.clear();
  owed_backward_.clear();
}

void StageLink::collect() {
  std::erase_if(sends_, [](Work& work) { return work.done(); });
}

}  // namespace gantry
