// The operations that DeferredInit has recorded for the memory of a tensor, and their replay. Internal to
// tensors/.
//
// The process has one table of records, by storage, because several threads build models at the same time. A
// mutex guards the table and its records. A record that take_record() returns belongs to the caller.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "gantry/core/slice.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::deferred {

// The position of a tensor in the recorded storage. A reference to the tensor itself would keep the memory
// forever.
struct Geometry {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  torch::ScalarType dtype = torch::kFloat32;
};

using Argument = std::variant<c10::IValue, Geometry>;

struct Step {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;  // the first one is the tensor that the step writes
};

struct Record {
  Geometry full;       // the tensor as it was created
  torch::Tensor base;  // the values before the first random step; undefined: there were none
  std::vector<Step> steps;
  std::vector<AppliedShard> shards;  // this rank's part of `full`
};

Geometry geometry_of(const torch::Tensor& tensor);
bool is_recorded(const torch::Tensor& tensor);
bool has_steps(const torch::Tensor& tensor);  // recorded, with at least one step
bool is_full(const torch::Tensor& tensor);    // the recorded tensor itself, not a view of a part
void start_record(const torch::Tensor& tensor, torch::Tensor base = {});
void add_step(const torch::Tensor& written, Step step);
std::optional<Record> take_record(const torch::Tensor& tensor);
void put_record(const torch::Tensor& tensor, Record record);

// Fills `target` with this rank's part of the recorded tensor. `target` is contiguous, on any device.
void replay(const Record& record, torch::Tensor& target, const std::string& global_name, std::uint64_t seed);

bool is_random(const std::string& op);              // in-place random operations that replay() supports
bool overwrites_everything(const std::string& op);  // uniform_, normal_, fill_, zero_

}  // namespace gantry::deferred
