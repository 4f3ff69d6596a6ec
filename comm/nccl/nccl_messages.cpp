#include "gantry/comm/nccl/nccl_messages.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <thread>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {
namespace {

// The way in which a message's tensor is sent.
enum Path : int { kAbsent, kOverHost, kDirect };

// A head as numbers: path, tag (kind, stage, microbatch, entry), dtype, dims, shape.
constexpr int kMostMessageDims = 12, kShapeAt = 7, kHeadNumbers = kShapeAt + kMostMessageDims;

// Tags in the host's group. The callers' tags are in the heads.
constexpr Tag kHeadTag{Tag::Kind::kUser, 0, 0, 0}, kIdTag{Tag::Kind::kUser, 0, 0, 1};
// Tag of the n-th tensor over the host from one member to another. Far fewer than 512 are in flight at once.
Tag payload_tag(std::uint64_t n) { return {Tag::Kind::kUser, 0, static_cast<int>(n % 512), 2}; }

std::vector<std::int64_t> shape_of(const std::int64_t* head) {
  return {head + kShapeAt, head + kShapeAt + head[kShapeAt - 1]};
}

torch::Tensor make_head(int path, const Tag& tag, const torch::Tensor& tensor) {
  torch::Tensor head = torch::zeros({kHeadNumbers}, torch::kInt64);
  auto* numbers = head.data_ptr<std::int64_t>();
  const std::int64_t dims = tensor.defined() ? tensor.dim() : 0;
  if (dims > kMostMessageDims)
    throw UsageError(
        {"send", fmt::format("the tensor has {} dimensions", dims), fmt::format("at most {}", kMostMessageDims), ""});
  const std::int64_t first[] = {path,      static_cast<std::int64_t>(tag.kind),
                                tag.stage, tag.microbatch,
                                tag.entry, tensor.defined() ? static_cast<std::int64_t>(tensor.scalar_type()) : 0,
                                dims};
  std::copy(std::begin(first), std::end(first), numbers);
  if (dims > 0) std::copy(tensor.sizes().begin(), tensor.sizes().end(), numbers + kShapeAt);
  return head;
}

// Polls while an answer is likely to be near, then sleeps.
class Pause {
 public:
  void operator()() {
    if (++rounds_ < 200)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  int rounds_ = 0;
};

class ReceiveState final : public Work::State {
 public:
  ReceiveState(std::shared_ptr<NcclMessages> messages, int from, std::shared_ptr<NcclReceive> call)
      : messages_(std::move(messages)), from_(from), call_(std::move(call)) {}

  bool done() override {
    if (taken_) return true;
    if (!look()) return false;
    NcclMessage& message = call_->message;
    if (message.on_host ? !message.payload.done() : message.operation && !message.operation->finished()) return false;
    take();
    return true;
  }
  void wait() override {
    if (taken_) return order();
    NcclJob& job = messages_->job();
    const double begin = steady_seconds();
    double notice = job.notices().due_seconds();
    Pause pause;
    while (true) {
      const bool ended = messages_->has_ended(from_);  // if so, all that it sent is visible
      if (look()) break;
      if (ended) job.fail(ended_early_text(own_name(), awaited(), messages_->describe_member(from_)));
      const double waited = steady_seconds() - begin;
      if (waited >= notice) {
        notice = job.timeout_seconds();
        job.notices().say(own_name(), waited, awaited());
      }
      if (waited >= job.timeout_seconds()) job.fail(deadline_text(own_name(), job.timeout_seconds(), awaited()));
      job.throw_if_failed();
      pause();
    }
    take();
  }
  torch::Tensor result() override { return call_->message.tensor; }

 private:
  std::string own_name() const { return messages_->describe_member(messages_->rank()); }
  std::string awaited() const {
    return fmt::format("{} from {}", describe(call_->tag), messages_->describe_member(from_));
  }
  bool look() {
    messages_->job().throw_if_failed();
    if (!call_->matched) messages_->progress(from_);
    return call_->matched;
  }
  void take() {
    NcclMessage& message = call_->message;
    if (message.on_host) message.tensor = message.payload.result();
    order();
    if (message.operation) message.operation->release();
    taken_ = true;
    torch::Tensor& tensor = message.tensor;
    if (!tensor.defined()) return;
    check(tensor);
    if (tensor.device().type() != call_->spec.device.type())
      tensor = tensor.to(call_->spec.device.is_cpu() ? torch::kCPU : messages_->job().device().device());
  }
  // Makes the current stream wait for the receive; called for each stream that waits.
  void order() {
    NcclMessage& message = call_->message;
    if (!message.operation) return;
    const NcclDevice& device = messages_->job().device();
    message.operation->precede(device.current_stream());
    if (message.tensor.device().type() == device.device().type())
      device.record_use(message.tensor, device.current_stream());
    messages_->job().throw_if_failed();
  }
  void check(const torch::Tensor& tensor) {
    const TensorSpec& spec = call_->spec;
    if (tensor.sizes().vec() == spec.shape && tensor.scalar_type() == spec.dtype) return;
    throw PeerError({messages_->describe_member(messages_->rank()),
                     fmt::format("{} from {} arrived as {}", describe(call_->tag), messages_->describe_member(from_),
                                 describe(tensor)),
                     fmt::format("{} [{}]", dtype_name(spec.dtype), fmt::join(spec.shape, ", ")),
                     "use the same shape and type on both sides"});
  }

  const std::shared_ptr<NcclMessages> messages_;
  const int from_;
  const std::shared_ptr<NcclReceive> call_;
  bool taken_ = false;
};

class SendState final : public Work::State {
 public:
  SendState(std::shared_ptr<NcclMessages> messages, std::shared_ptr<NcclOperation> operation, bool owned_by_receiver)
      : messages_(std::move(messages)), operation_(std::move(operation)), given_away_(owned_by_receiver) {}
  bool done() override {
    messages_->job().throw_if_failed();
    return operation_->finished();
  }
  void wait() override {
    messages_->job().throw_if_failed();
    operation_->precede(messages_->job().device().current_stream());
    messages_->job().throw_if_failed();
  }
  void dropped() override {
    if (!given_away_) wait();
  }

 private:
  const std::shared_ptr<NcclMessages> messages_;
  const std::shared_ptr<NcclOperation> operation_;  // kept by its communicator; it keeps the memory
  const bool given_away_;
};

}  // namespace

NcclMessages::NcclMessages(std::shared_ptr<NcclJob> job, std::shared_ptr<ProcessGroup> base, std::string label,
                           std::vector<int> ranks, bool direct)
    : job_(std::move(job)), base_(std::move(base)), label_(std::move(label)), ranks_(std::move(ranks)) {
  const int size = base_->size();
  sources_.resize(size);
  payloads_sent_.resize(size);
  if (!direct || size == 1) return;
  // All ranks connect the pairs in the same order, so that no two of them wait for each other. Every other
  // pair of neighbours comes first, because these need not wait for the rest.
  const int pairs = size == 2 ? 1 : size;
  for (const int begin : {0, 1})
    for (int first = begin; first < pairs; first += 2) {
      connect(first, (first + 1) % size);
      connect((first + 1) % size, first);
    }
}

// Makes the communicator of one direction, and sends a byte over it. The first send of a pair sets up its
// connection, and would otherwise block the sender's host until its peer receives.
void NcclMessages::connect(int from, int to) {
  const int me = rank();
  if (me != from && me != to) return;
  torch::Tensor id_bytes = torch::empty({static_cast<std::int64_t>(sizeof(ncclUniqueId))}, torch::kUInt8);
  ncclUniqueId id;
  if (me == from) {
    id = new_unique_id();
    std::memcpy(id_bytes.data_ptr(), &id, sizeof(id));
    base_->send(id_bytes, to, kIdTag).wait();
  } else {
    id_bytes = base_->recv({id_bytes.sizes().vec(), torch::kUInt8}, from, kIdTag).result();
    std::memcpy(&id, id_bytes.data_ptr(), sizeof(id));
  }
  const std::string name =
      fmt::format("messages of group '{}' from {} to {}", label_, describe_member(from), describe_member(to));
  auto communicator = std::make_unique<NcclCommunicator>(
      job_, NcclMembers{name, {ranks_[from], ranks_[to]}, me == from ? 0 : 1}, id, NcclCommunicator::Use::kMessages);
  const torch::Tensor byte = torch::zeros({1}, torch::dtype(torch::kUInt8).device(job_->device().device()));
  communicator->issue(
      {byte.storage()}, [name] { return "the first of the " + name; },
      [&](ncclComm_t pair, cudaStream_t stream) {
        return me == from ? ncclSend(byte.data_ptr(), 1, ncclUint8, 1, pair, stream)
                          : ncclRecv(byte.data_ptr(), 1, ncclUint8, 0, pair, stream);
      });
  (me == from ? to_ : from_)[me == from ? to : from] = std::move(communicator);
}

void NcclMessages::send_head(int to, const Tag& tag, const torch::Tensor& tensor, int path) {
  base_->hand_over(make_head(path, tag, tensor), to, kHeadTag);
}

Work NcclMessages::send(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver) {
  job_->throw_if_failed();
  if (to == rank()) {
    const torch::NoGradGuard no_grad;
    deliver(sources_[to], {.tag = tag,
                           .tensor = !tensor.defined()   ? tensor
                                     : owned_by_receiver ? tensor.detach()
                                                         : tensor.clone()});
    return {};
  }
  if (!tensor.defined()) {
    send_head(to, tag, tensor, kAbsent);
    return {};
  }
  if (job_->device().holds(tensor, "send") && tensor.numel() > 0 && to_.contains(to))
    return send_direct(tensor, to, tag, owned_by_receiver);
  send_head(to, tag, tensor, kOverHost);
  const torch::Tensor on_host = tensor.detach().to(torch::kCPU).contiguous();
  const Tag place = payload_tag(payloads_sent_[to]++);
  if (owned_by_receiver || !on_host.is_alias_of(tensor)) return base_->hand_over(on_host, to, place);
  return base_->send(on_host, to, place);
}

Work NcclMessages::send_direct(const torch::Tensor& tensor, int to, const Tag& tag, bool owned_by_receiver) {
  const torch::Tensor packed = tensor.detach().contiguous();
  auto operation = to_.at(to)->issue(
      {packed.storage()},
      [tag, peer = describe_member(to)] { return fmt::format("{} to take {}", peer, describe(tag)); },
      [&](ncclComm_t pair, cudaStream_t stream) {
        return ncclSend(packed.const_data_ptr(), packed.nbytes(), ncclUint8, 1, pair, stream);
      });
  send_head(to, tag, packed, kDirect);  // the send must be issued before: the receiver relies on it
  return Work(std::make_shared<SendState>(shared_from_this(), std::move(operation), owned_by_receiver));
}

Work NcclMessages::recv(const TensorSpec& spec, int from, const Tag& tag) {
  auto call = std::make_shared<NcclReceive>(NcclReceive{tag, spec, false, {}});
  Source& source = sources_[from];
  const auto here = std::find_if(source.early.begin(), source.early.end(),
                                 [&](const NcclMessage& message) { return message.tag == tag; });
  if (here != source.early.end()) {
    call->message = std::move(*here);
    call->matched = true;
    source.early.erase(here);
  } else {
    source.wanted.push_back(call);
    progress(from);
  }
  return Work(std::make_shared<ReceiveState>(shared_from_this(), from, std::move(call)));
}

void NcclMessages::progress(int from) {
  Source& source = sources_[from];
  if (from == rank()) return;
  while (!source.wanted.empty()) {
    if (!source.listening) source.head = base_->recv({{kHeadNumbers}, torch::kInt64}, from, kHeadTag);
    source.listening = true;
    if (!source.head.done()) return;
    const torch::Tensor head = source.head.result();
    source.listening = false;
    deliver(source, begin_receive(from, head));
  }
}

void NcclMessages::deliver(Source& source, NcclMessage message) {
  const auto call = std::find_if(source.wanted.begin(), source.wanted.end(),
                                 [&](const auto& one) { return one->tag == message.tag; });
  if (call == source.wanted.end()) {
    source.early.push_back(std::move(message));
    return;
  }
  (*call)->message = std::move(message);
  (*call)->matched = true;
  source.wanted.erase(call);
}

NcclMessage NcclMessages::begin_receive(int from, const torch::Tensor& head) {
  const auto* numbers = head.data_ptr<std::int64_t>();
  NcclMessage message;
  message.tag = {static_cast<Tag::Kind>(numbers[1]), static_cast<int>(numbers[2]), static_cast<int>(numbers[3]),
                 static_cast<int>(numbers[4])};
  const auto dtype = static_cast<torch::ScalarType>(numbers[5]);
  if (numbers[0] == kOverHost) {
    message.on_host = true;
    message.payload = base_->recv({shape_of(numbers), dtype}, from, payload_tag(sources_[from].payloads++));
  } else if (numbers[0] == kDirect) {
    NcclCommunicator& communicator = *from_.at(from);
    {
      // Allocated on the communicator's stream, so that it can write to the memory without waiting for this
      // thread's computation.
      const c10::DeviceGuard on_device(job_->device().device());
      const c10::StreamGuard on_stream(communicator.stream());
      message.tensor = torch::empty(shape_of(numbers), torch::dtype(dtype).device(job_->device().device()));
    }
    message.operation = communicator.issue(
        {message.tensor.storage()},
        [tag = message.tag, peer = describe_member(from)] { return fmt::format("{} from {}", describe(tag), peer); },
        [&](ncclComm_t pair, cudaStream_t stream) {
          return ncclRecv(message.tensor.data_ptr(), message.tensor.nbytes(), ncclUint8, 0, pair, stream);
        },
        /*after_current=*/false);
  }
  return message;
}

}  // namespace gantry
