#include "gantry/pipeline/executor.h"

#include "gantry/tensors/libtorch.h"

namespace gantry::schedule {
namespace {

// Number of receives that are posted ahead of their use: enough to hide a message's latency, few enough to
// bound memory.
constexpr std::size_t kReceivesAhead = 4;

StageMessage message(StageMessage::Direction direction, int sending_stage, int microbatch,
                     const StageRuntime& runtime) {
  return {direction, sending_stage, microbatch, runtime.shape_key(microbatch)};
}

StageMessage forward_message(int sending_stage, int microbatch, const StageRuntime& runtime) {
  return message(StageMessage::Direction::kForward, sending_stage, microbatch, runtime);
}

StageMessage backward_message(int sending_stage, int microbatch, const StageRuntime& runtime) {
  return message(StageMessage::Direction::kBackward, sending_stage, microbatch, runtime);
}

// Returns leaves for the output of another stage on this rank, like those that the receiver of a message
// gets.
TensorDict as_received(const TensorDict& sent) {
  TensorDict received;
  for (const auto& [name, tensor] : sent) {
    torch::Tensor leaf = tensor.defined() ? tensor.detach() : tensor;
    if (tensor.defined() && tensor.requires_grad()) leaf.requires_grad_();
    received.set(name, leaf);
  }
  return received;
}

// Increases with every write into one of the tensors.
std::int64_t versions_of(const TensorDict& tensors) {
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined() && !tensor.is_inference()) sum += tensor._version();
  return sum;
}

// The input of a stage may be the memory of another rank, so the stage must not write into it.
void expect_unwritten(const TensorDict& given, std::int64_t versions, const Action& action, const char* what) {
  if (versions_of(given) == versions) return;
  std::string names;
  for (const auto& [name, tensor] : given) names += (names.empty() ? "'" : ", '") + name + "'";
  throw UsageError({"stage " + std::to_string(action.stage),
                    std::string("the stage changed its ") + what + " (" + names + ") of microbatch " +
                        std::to_string(action.microbatch) + " in place, while other ranks read it",
                    "an operation that returns a new tensor", "use x = x.add(y) instead of x.add_(y)"});
}

// True if only this handle holds the memory: not the graph, a view or the model itself (an output may be a
// parameter). A backward does not need such memory.
bool is_sole_owner(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.has_storage() && !tensor.is_view() &&
         tensor.storage().use_count() == 1;
}

}  // namespace

Executor::Executor(Schedule lowered, int rank, StageLink& link)
    : schedule_(std::move(lowered)), rank_(rank), link_(link) {}

bool Executor::run(StageRuntime& runtime, ActionTimes* times, const Stops& stops) {
  activations_.clear();
  is_aborted_ = false;
  const auto& row = schedule_.actions[rank_];
  const torch::AutoGradMode gradients(runtime.needs_gradients());
  for (std::size_t position = 0; position < row.size(); ++position) {
    post_receives(position, runtime);
    const Action& action = row[position];
    if (action.is_compute() && !is_aborted_ && stops) is_aborted_ = stops();
    if (action.is_compute() && is_aborted_) {
      skip(action, runtime);
    } else {
      if (action.overlaps_next) offer(row[position + 1], runtime);
      if (times) times->begin();
      execute(action, runtime);
      if (times) times->end(action);
    }
    link_.collect();
  }
  link_.flush();
  activations_.clear();
  return !is_aborted_;
}

// The outputs of a skipped action stay empty, and so do the messages that carry them.
void Executor::skip(const Action& action, StageRuntime& runtime) {
  activations_[{action.stage, action.microbatch}] = {};
  runtime.skip(action.kind, action.stage, action.microbatch);
}

void Executor::post_receives(std::size_t position, const StageRuntime& runtime) {
  const auto& row = schedule_.actions[rank_];
  const std::size_t end = std::min(row.size(), position + kReceivesAhead);
  for (std::size_t i = position; i < end; ++i) {
    const Action& action = row[i];
    if (action.kind == ActionKind::kRecvForward)
      link_.post(forward_message(action.stage - 1, action.microbatch, runtime), schedule_.rank_of(action.stage - 1));
    if (action.kind == ActionKind::kRecvBackward)
      link_.post(backward_message(action.stage + 1, action.microbatch, runtime), schedule_.rank_of(action.stage + 1));
  }
}

void Executor::execute(const Action& action, StageRuntime& runtime) {
  const auto [stage, microbatch] = std::pair(action.stage, action.microbatch);
  switch (action.kind) {
    case ActionKind::kForward:
      return forward(action, runtime);
    case ActionKind::kBackward:
    case ActionKind::kInputGradient:
      return backward(action, runtime);
    case ActionKind::kWeightGradient:
      return runtime.backward_weight(stage, microbatch);
    case ActionKind::kEmbeddingForward:
    case ActionKind::kEmbeddingBackward:
    case ActionKind::kHeadForward:
    case ActionKind::kHeadCombine:
    case ActionKind::kHeadBackward:
      return runtime.run_vocabulary(action.kind, microbatch);
    case ActionKind::kSendForward:
      return send_forward(action, runtime);
    case ActionKind::kSendBackward:
      return send_backward(action, runtime);
    case ActionKind::kRecvForward:
      activation(stage, microbatch).input =
          link_.receive(forward_message(stage - 1, microbatch, runtime), schedule_.rank_of(stage - 1));
      if (activation(stage, microbatch).input.empty()) is_aborted_ = true;
      return;
    case ActionKind::kRecvBackward:
      activation(stage, microbatch).output_gradients =
          link_.receive(backward_message(stage + 1, microbatch, runtime), schedule_.rank_of(stage + 1));
      return;
    case ActionKind::kUnshard:
    case ActionKind::kReshard:
    case ActionKind::kReduceGradient:
    case ActionKind::kOffload:
    case ActionKind::kReload:
    case ActionKind::kOffloadState:
    case ActionKind::kReloadState:
      return runtime.extra(action);
  }
}

// Offers the second action of an overlapped pair. Its inputs have arrived, because receives precede both
// actions.
void Executor::offer(const Action& backward, StageRuntime& runtime) {
  const Activation& its = activation(backward.stage, backward.microbatch);
  runtime.offer_backward(backward, its.output, its.output_gradients);
}

void Executor::forward(const Action& action, StageRuntime& runtime) {
  auto& mine = activation(action.stage, action.microbatch);
  const std::int64_t versions = versions_of(mine.input);
  StageOutput output = runtime.forward(action.stage, action.microbatch, mine.input);
  expect_unwritten(mine.input, versions, action, "input");
  const int next = action.stage + 1;
  if (next < schedule_.stages() && output.boundary.empty())
    throw UsageError({"stage " + std::to_string(action.stage), "its forward returned nothing for the next stage", "",
                      "return the inputs of the next stage from the policy's forward"});
  if (next < schedule_.stages() && holds(next))
    activation(next, action.microbatch).input = as_received(output.boundary);
  if (!runtime.needs_gradients()) mine.input = {};
  mine.output = std::move(output);
}

void Executor::send_forward(const Action& action, const StageRuntime& runtime) {
  auto& boundary = activation(action.stage, action.microbatch).output.boundary;
  std::vector<torch::Tensor> freed;
  for (auto& [name, tensor] : boundary)
    if (is_sole_owner(tensor)) freed.push_back(tensor);
  // Send aliases, so that the outputs can release the memory while it is in flight.
  TensorDict sent = as_received(boundary);
  link_.send(forward_message(action.stage, action.microbatch, runtime), schedule_.rank_of(action.stage + 1), sent);
  if (!runtime.needs_gradients()) {
    boundary = {};
    return;
  }
  for (auto& tensor : freed) tensor.set_data(torch::empty({0}, tensor.options().requires_grad(false)));
}

void Executor::backward(const Action& action, StageRuntime& runtime) {
  const std::pair key{action.stage, action.microbatch};
  Activation mine = std::move(activations_[key]);
  const bool full = action.kind == ActionKind::kBackward;
  const std::int64_t versions = versions_of(mine.output_gradients);
  TensorDict gradients =
      full ? runtime.backward(action.stage, action.microbatch, mine.input, mine.output, mine.output_gradients)
           : runtime.backward_input(action.stage, action.microbatch, mine.input, mine.output, mine.output_gradients);
  expect_unwritten(mine.output_gradients, versions, action, "output's gradients");
  const int previous = action.stage - 1;
  if (previous < 0) {
    activations_.erase(key);
  } else if (holds(previous)) {
    activations_.erase(key);
    activation(previous, action.microbatch).output_gradients = std::move(gradients);
  } else {
    activations_[key].input_gradients = std::move(gradients);
  }
}

void Executor::send_backward(const Action& action, const StageRuntime& runtime) {
  const std::pair key{action.stage, action.microbatch};
  link_.send(backward_message(action.stage, action.microbatch, runtime), schedule_.rank_of(action.stage - 1),
             activations_[key].input_gradients);
  activations_.erase(key);
}

}  // namespace gantry::schedule
