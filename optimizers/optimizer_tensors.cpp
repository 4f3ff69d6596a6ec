#include "gantry/optimizers/optimizer_tensors.h"

#include <array>
#include <typeinfo>
#include <utility>

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/rmsprop.h>

#include "gantry/core/error.h"
#include "gantry/optimizers/fused_adamw.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

// A tensor of a parameter's state, and the groups that have it.
struct StateTensor {
  const char* name;  // name in checkpoints
  torch::Tensor& (*of)(OptimizerParamState& state);
  bool (*is_kept)(const OptimizerOptions& options) = [](const OptimizerOptions&) { return true; };
};

// The state of a class of optimizers in LibTorch.
struct StateTable {
  bool (*is_of)(const Optimizer& optimizer);
  std::unique_ptr<OptimizerParamState> (*make)();
  std::vector<StateTensor> tensors;
  // The number of steps that the optimizer has taken for the parameter; null: it does not count them.
  std::int64_t& (*steps)(OptimizerParamState& state) = nullptr;
  // The initial value of the first tensor.
  double (*first_value)(const Optimizer& optimizer) = [](const Optimizer&) { return 0.0; };
};

template <class Class>
bool is_a(const Optimizer& optimizer) {
  return dynamic_cast<const Class*>(&optimizer) != nullptr;
}

// A derived class may have its own state, which the table lacks.
template <class Class>
bool is_exactly(const Optimizer& optimizer) {
  return typeid(optimizer) == typeid(Class);
}

bool is_adamw(const Optimizer& optimizer) {
  return is_exactly<torch::optim::AdamW>(optimizer) || is_exactly<FusedAdamW>(optimizer);
}

template <class State>
std::unique_ptr<OptimizerParamState> make_state() {
  return std::make_unique<State>();
}

template <class State>
std::int64_t& steps_in(OptimizerParamState& state) {
  return static_cast<State&>(state).step();
}

// The tensor that an accessor of a state returns.
template <class State, torch::Tensor& (State::*Get)()>
torch::Tensor& tensor_in(OptimizerParamState& state) {
  return (static_cast<State&>(state).*Get)();
}

template <class Options>
bool has_amsgrad(const OptimizerOptions& options) {
  return static_cast<const Options&>(options).amsgrad();
}

template <class Options>
bool has_momentum(const OptimizerOptions& options) {
  return static_cast<const Options&>(options).momentum() != 0;
}

bool is_centered(const OptimizerOptions& options) {
  return static_cast<const torch::optim::RMSpropOptions&>(options).centered();
}

double initial_sum(const Optimizer& optimizer) {
  return static_cast<const torch::optim::AdagradOptions&>(optimizer.defaults()).initial_accumulator_value();
}

template <class State, class Options>
std::vector<StateTensor> moments() {
  return {{"exp_avg", tensor_in<State, &State::exp_avg>},
          {"exp_avg_sq", tensor_in<State, &State::exp_avg_sq>},
          {"max_exp_avg_sq", tensor_in<State, &State::max_exp_avg_sq>, has_amsgrad<Options>}};
}

std::vector<StateTensor> rmsprop_tensors() {
  using State = torch::optim::RMSpropParamState;
  return {{"square_avg", tensor_in<State, &State::square_avg>},
          {"momentum_buffer", tensor_in<State, &State::momentum_buffer>, has_momentum<torch::optim::RMSpropOptions>},
          {"grad_avg", tensor_in<State, &State::grad_avg>, is_centered}};
}

const std::array<StateTable, 5>& state_tables() {
  using namespace torch::optim;
  // The first step of SGD sets the buffer to the gradient, which is also the result from a buffer of zeros.
  static const std::array<StateTable, 5> tables = {
      StateTable{.is_of = is_adamw,
                 .make = make_state<AdamWParamState>,
                 .tensors = moments<AdamWParamState, AdamWOptions>(),
                 .steps = steps_in<AdamWParamState>},
      StateTable{.is_of = is_exactly<Adam>,
                 .make = make_state<AdamParamState>,
                 .tensors = moments<AdamParamState, AdamOptions>(),
                 .steps = steps_in<AdamParamState>},
      StateTable{.is_of = is_exactly<SGD>,
                 .make = make_state<SGDParamState>,
                 .tensors = {{"momentum_buffer", tensor_in<SGDParamState, &SGDParamState::momentum_buffer>,
                              has_momentum<SGDOptions>}}},
      StateTable{.is_of = is_exactly<RMSprop>,
                 .make = make_state<RMSpropParamState>,
                 .tensors = rmsprop_tensors(),
                 .steps = steps_in<RMSpropParamState>},
      StateTable{.is_of = is_exactly<Adagrad>,
                 .make = make_state<AdagradParamState>,
                 .tensors = {{"sum", tensor_in<AdagradParamState, &AdagradParamState::sum>}},
                 .steps = steps_in<AdagradParamState>,
                 .first_value = initial_sum}};
  return tables;
}

const StateTable* find_table(const Optimizer& optimizer) {
  for (const StateTable& table : state_tables())
    if (table.is_of(optimizer)) return &table;
  return nullptr;
}

const StateTable& table_of(const Optimizer& optimizer) {
  if (const StateTable* table = find_table(optimizer)) return *table;
  refuse_unsaved_optimizer(optimizer, "checkpoint");
}

// The options of the group with the parameter. A parameter without a group is not stepped.
const OptimizerOptions& options_of(Optimizer& optimizer, const torch::Tensor& parameter) {
  for (auto& group : optimizer.param_groups())
    for (const auto& held : group.params())
      if (held.is_same(parameter)) return group.options();
  return optimizer.defaults();
}

OptimizerParamState& state_of(const StateTable& table, Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& entry = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!entry) entry = table.make();
  return *entry;
}

}  // namespace

NamedTensors optimizer_tensors(Optimizer& optimizer, const torch::Tensor& parameter) {
  if (auto* own = dynamic_cast<StatefulOptimizer*>(&optimizer)) return own->state_tensors(parameter);
  const StateTable& table = table_of(optimizer);
  const OptimizerOptions& options = options_of(optimizer, parameter);
  NamedTensors tensors;
  for (const StateTensor& each : table.tensors) {
    if (!each.is_kept(options)) continue;
    torch::Tensor& tensor = each.of(state_of(table, optimizer, parameter));
    if (!tensor.defined())
      tensor = torch::full_like(parameter, tensors.empty() ? table.first_value(optimizer) : 0.0).detach();
    tensors.emplace_back(each.name, tensor);
  }
  return tensors;
}

std::optional<int> missing_dim(const Optimizer& optimizer, const std::string& name) {
  const auto* own = dynamic_cast<const StatefulOptimizer*>(&optimizer);
  return own ? own->missing_dim(name) : std::nullopt;
}

void set_optimizer_steps(Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t steps) {
  if (auto* own = dynamic_cast<StatefulOptimizer*>(&optimizer)) return own->set_steps(parameter, steps);
  const StateTable& table = table_of(optimizer);
  if (!table.steps) return;
  optimizer_tensors(optimizer, parameter);  // creates the tensors: a state with steps must have them
  table.steps(state_of(table, optimizer, parameter)) = steps;
}

std::optional<std::int64_t> optimizer_steps(Optimizer& optimizer, const torch::Tensor& parameter) {
  if (auto* own = dynamic_cast<StatefulOptimizer*>(&optimizer)) return own->steps_taken(parameter);
  const StateTable& table = table_of(optimizer);
  if (!table.steps) return std::nullopt;
  optimizer_tensors(optimizer, parameter);
  return table.steps(state_of(table, optimizer, parameter));
}

bool is_saved_optimizer(const Optimizer& optimizer) {
  return dynamic_cast<const StatefulOptimizer*>(&optimizer) || find_table(optimizer);
}

void refuse_unsaved_optimizer(const Optimizer& optimizer, const std::string& where) {
  throw UsageError(
      {where,
       "the optimizer cannot be saved, because the state of its class " + c10::demangle(typeid(optimizer).name()) +
           " is unknown",
       "Adam, AdamW, SGD, RMSprop, Adagrad, Lion, Muon, Adafactor, AdamW8bit, AdamWBf16 or a gantry::StatefulOptimizer",
       "derive its class from gantry::StatefulOptimizer and return its state in state_tensors()"});
}

void forget_initial_state(Optimizer& optimizer) {
  if (!is_a<torch::optim::Adagrad>(optimizer)) return;
  for (const auto& [parameter, state] : optimizer.state())
    if (static_cast<torch::optim::AdagradParamState&>(*state).step() > 0) return;
  optimizer.state().clear();
}

void make_initial_state(Optimizer& optimizer) {
  if (!is_a<torch::optim::Adagrad>(optimizer)) return;
  for (const auto& group : optimizer.param_groups())
    for (const auto& parameter : group.params()) optimizer_tensors(optimizer, parameter);
}

// The classes in the tables step each element independently.
bool is_known_optimizer(const Optimizer& optimizer) { return is_saved_optimizer(optimizer); }

OptimizerUnit optimizer_unit(const Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group) {
  const auto* own = dynamic_cast<const StatefulOptimizer*>(&optimizer);
  return own ? own->unit(group) : OptimizerUnit::kElement;
}

}  // namespace gantry
