// Work next to experts on other ranks runs while their rows are in flight. Forward and backward are checked
// as orders of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include <ATen/record_function.h>

#include "gantry/nn/expert_exchange.h"
#include "gantry/nn/experts.h"
#include "gantry/tensors/libtorch.h"
#include "ranks.h"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using Events = std::vector<std::string>;

thread_local Events* events_of_thread = nullptr;

std::unique_ptr<at::ObserverContext> note_communication(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (!events_of_thread) return nullptr;
  if (name == "gantry::all_to_all") events_of_thread->emplace_back("all_to_all");
  // A group that wraps another one waits for the inner group within its own wait.
  if (name == "gantry::wait" && (events_of_thread->empty() || events_of_thread->back() != "wait"))
    events_of_thread->emplace_back("wait");
  return nullptr;
}

// Records the communication of this thread, and events that the test adds.
class NotedEvents {
 public:
  NotedEvents() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note_communication))) {
    events_of_thread = &events_;
  }
  ~NotedEvents() {
    events_of_thread = nullptr;
    at::removeCallback(handle_);
  }
  NotedEvents(const NotedEvents&) = delete;
  NotedEvents& operator=(const NotedEvents&) = delete;

  void add(const char* event) { events_.emplace_back(event); }
  Events take() { return std::exchange(events_, {}); }

 private:
  Events events_;
  at::CallbackHandle handle_;
};

torch::Tensor noted_gradient(const torch::Tensor& tensor, NotedEvents& events, const char* event) {
  tensor.register_hook([&events, event](const torch::Tensor&) { events.add(event); });
  return tensor;
}

TEST(ExpertOverlap, SharedExpertsRunWhileTokensAreInFlight) {
  run_ranks({.data = 2, .expert = 2}, [&](World&, ProcessGroupMesh& mesh) {
    nn::Router router(nn::RouterOptions{.hidden = 6, .experts = 4, .used = 2});
    nn::Experts experts(nn::ExpertsOptions{.shape = {4, 6, 7}});
    experts->shard(Expert{.partitioned = true}, {mesh, {axis::kExpert}});
    const torch::Tensor tokens = torch::sin(torch::arange(60, torch::kFloat) * (mesh.rank() + 1.3)).view({2, 5, 6});
    tokens.requires_grad_();
    const nn::Routing routing = router(tokens);
    NotedEvents events;
    const auto dispatched = experts->dispatch(tokens, routing);
    events.add("first");
    const torch::Tensor first = noted_gradient(tokens * 2, events, "gradient of first");
    experts->compute(*dispatched);
    events.add("second");
    const torch::Tensor second = noted_gradient(first * 3, events, "gradient of second");
    const torch::Tensor output = experts->combine(*dispatched, routing.weights) + second;
    EXPECT_THAT(events.take(), ElementsAre("wait", "all_to_all", "first", "wait", "all_to_all", "second", "wait"));
    output.sum().backward();
    EXPECT_THAT(events.take(),
                ElementsAre("all_to_all", "gradient of second", "wait", "all_to_all", "gradient of first", "wait"));
  });
}

TEST(ExpertOverlap, StepsGiveTheBitsOfOneCall) {
  run_ranks({.data = 2, .expert = 2}, [&](World&, ProcessGroupMesh& mesh) {
    nn::Router router(nn::RouterOptions{.hidden = 6, .experts = 5, .used = 2});
    nn::Experts experts(nn::ExpertsOptions{.shape = {5, 6, 7}});
    EXPECT_FALSE(experts->travels());
    experts->shard(Expert{.partitioned = true}, {mesh, {axis::kExpert}});
    EXPECT_TRUE(experts->travels());
    const torch::Tensor tokens = torch::sin(torch::arange(60, torch::kFloat) * (mesh.rank() + 1.3)).view({2, 5, 6});
    torch::Tensor outputs[2], gradients[2];
    for (const bool in_steps : {false, true}) {
      const torch::Tensor input = tokens.clone().requires_grad_();
      const nn::Routing routing = router(input);
      if (in_steps) {
        const auto dispatched = experts->dispatch(input, routing);
        experts->compute(*dispatched);
        outputs[1] = experts->combine(*dispatched, routing.weights);
      } else {
        outputs[0] = experts(input, routing);
      }
      outputs[in_steps].sin().sum().backward();
      gradients[in_steps] = input.grad();
    }
    EXPECT_TRUE(torch::equal(outputs[0], outputs[1]));
    EXPECT_TRUE(torch::equal(gradients[0], gradients[1]));
  });
}

}  // namespace
}  // namespace gantry::testing
