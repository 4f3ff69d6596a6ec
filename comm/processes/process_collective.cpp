#include "gantry/comm/processes/process_collective.h"

#include <fmt/format.h>

#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// Returns a contiguous tensor. If `tensor` is contiguous, returns `tensor` itself, because another handle
// would be an allocation.
torch::Tensor packed(const torch::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : tensor.detach().contiguous();
}

void scale(std::vector<std::int64_t>& out, const Sizes& rows, std::int64_t by) {
  out.clear();
  for (const std::int64_t size : rows) out.push_back(size * by);
}

}  // namespace

void CollectiveCall::fill(const Collective& call, std::uint64_t number) {
  release();
  code = {call.kind, call.op};
  root = call.root;
  sequence = number;
  out = in = nullptr;
  item = 1;
  elements = 0;
  parts.clear();
  other_parts.clear();
  if (!call.target) return;
  const torch::Tensor& target = *call.target;
  code.dtype = target.scalar_type();
  target_ = target;
  shown_ = call.brought();
  const torch::Tensor worked_on = packed(target);
  if (!target.is_contiguous()) temporary_ = worked_on;
  kept_out_ = worked_on.storage();
  in = out = static_cast<char*>(worked_on.data_ptr());
  item = static_cast<std::int64_t>(target.element_size());
  elements = target.numel();
  if (call.in) {
    const torch::Tensor source = packed(*call.in);
    kept_in_ = source.storage();
    in = static_cast<char*>(source.data_ptr());
  }
  const std::int64_t row = target.dim() > 0 ? row_elements(shown_) : 1;
  if (call.sizes) scale(parts, *call.sizes, row);
  if (call.out_sizes) scale(other_parts, *call.out_sizes, row);
}

std::string CollectiveCall::describe() const {
  const std::string name = name_of(code.kind);
  return shown_.defined() ? name + " of " + gantry::describe(shown_) : name;
}

void CollectiveCall::give_result() {
  if (temporary_.defined()) {
    const torch::NoGradGuard no_grad;
    target_.copy_(temporary_);
  }
  release();
}

void CollectiveCall::release() {
  target_.reset();
  shown_.reset();
  temporary_.reset();
  kept_out_ = {};
  kept_in_ = {};
}

void ProcessCollective::begin(const Collective& call, std::uint64_t number) {
  call_.fill(call, number);
  restart();
  begun_ = true;
  tag_ = channel_->data_tags().collective(number, call_.code.encode());
  prepare();
}

std::string ProcessCollective::describe_wait(int) {
  return fmt::format("{}, number {} of group '{}'", call_.describe(), call_.sequence, channel_->label());
}

std::string ProcessCollective::describe_awaited(const std::vector<int>& absent, bool passed_on) const {
  return fmt::format("{}, number {} of group '{}', which {}{}", call_.describe(), call_.sequence, channel_->label(),
                     absent.empty() ? "other members have not received their parts of"
                                    : channel_->describe_members(absent) + " has not joined",
                     passed_on && !absent.empty() ? ", or waits in for other members" : "");
}

std::string ProcessCollective::describe_mismatch(int peer, std::int64_t expected, std::int64_t received) {
  const std::string sent = received < 0 ? fmt::format("more than {}", expected) : std::to_string(received);
  return fmt::format(
      "group '{}': {} called {} and received {} bytes from {} instead of {}; all members must make the same calls in "
      "the "
      "same order",
      channel_->label(), channel_->describe_member(channel_->rank()), call_.describe(), sent,
      channel_->describe_member(peer), expected);
}

std::string ProcessCollective::describe_calls(const std::string& mine, int peer, const std::string& theirs) const {
  return fmt::format(
      "group '{}': {} called {} while {} called {}; all members must make the same calls in the same order",
      channel_->label(), channel_->describe_member(channel_->rank()), mine, channel_->describe_member(peer), theirs);
}

std::string ProcessCollective::find_mismatch(const std::vector<int>& missing) {
  for (const int peer : missing)
    for (int code = 0; code < call_codes(); ++code) {
      if (code == call_.code.encode()) continue;
      if (engine().transport().probe(channel_->data(), peer, channel_->data_tags().collective(call_.sequence, code)))
        return describe_calls(call_.describe(), peer, describe_call_code(code));
    }
  return "";
}

}  // namespace gantry
