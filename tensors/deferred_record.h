// What DeferredInit has recorded of a tensor's memory, and its replay. Internal to tensors/.
//
// Records are kept by storage, in one table for the process: models are built on several threads at once. The table and
// the records in it are guarded by its mutex; a record that is taken out belongs to who took it.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "gantry/core/slice.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::deferred {

// A tensor of the recorded storage, by its place in it: holding the tensor itself would keep the memory for ever.
struct Geometry {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  torch::ScalarType dtype = torch::kFloat32;
};

using Argument = std::variant<c10::IValue, Geometry>;

struct Step {
  c10::OperatorHandle op;
  std::vector<Argument> arguments;  // the first is the tensor that is written
};

struct Record {
  Geometry full;       // the tensor as it was made
  torch::Tensor base;  // values from before the first random step, where there were any
  std::vector<Step> steps;
  std::vector<AppliedShard> shards;  // this rank's part of `full`
};

Geometry geometry_of(const torch::Tensor& tensor);
bool is_recorded(const torch::Tensor& tensor);
bool has_steps(const torch::Tensor& tensor);  // recorded, and something was done to it
bool is_full(const torch::Tensor& tensor);    // it is the recorded tensor itself, not a view of a part
void start_record(const torch::Tensor& tensor, torch::Tensor base = {});
void add_step(const torch::Tensor& written, Step step);
std::optional<Record> take_record(const torch::Tensor& tensor);
void put_record(const torch::Tensor& tensor, Record record);

// Fills `target`, the part of the record's whole that is kept, contiguous, on any device.
void replay(const Record& record, torch::Tensor& target, const std::string& global_name, std::uint64_t seed);

bool is_random(const std::string& op);              // in-place random operations that replay can draw
bool overwrites_everything(const std::string& op);  // uniform_, normal_, fill_, zero_

}  // namespace gantry::deferred
