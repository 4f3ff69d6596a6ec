// Building a model without its memory: under DeferredInit the in-place initialisation of unmodified modules (uniform_,
// normal_, fill_, mul_, copy_, through views too) is recorded instead of run. The untouched memory of `empty` costs
// nothing. Later each rank replays only what it holds, straight into its slice, by counter-based Philox on (seed,
// global name, element): initial weights are the same in every layout, however a tensor is cut.
//
// How: a boxed fallback on the dispatcher's DeferredInit key. A tensor made by empty* is deferred; one made with values
// (zeros, ones, arange, tril ...) is concrete until something random is written to it. Reading a deferred tensor (item,
// mm,
// ...) and random factories are recorded with their inputs, or refused by name with UsageError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/shard_spec.h"

namespace gantry {

// Records for its lifetime, on this thread. Nests.
class DeferredInit {
 public:
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

 private:
  bool former_;
};

// True while `tensor` has recorded initialisation that has not been replayed.
bool is_deferred(const torch::Tensor& tensor);

// Cuts a parameter or buffer to this rank's part of what earlier cuts have left of it, in place (`set_data`): identity,
// ties and optimizer references stay. A deferred one keeps its record and touches no memory. No-op when the cut cuts
// nothing, and for a tensor that has the local extent already (a tied parameter).
void shard_tensor(torch::Tensor& tensor, const ShardSpec& cut, int rank);

// Frees the memory, in place; a record is dropped. The tensor then has no elements.
void release_tensor(torch::Tensor& tensor);

// Replays the record of a deferred tensor into its memory, or into memory of `device`, where it then lies: random
// numbers are drawn there (tensors/kernels/draw.h). Every element equals that of an unsharded replay with the same seed
// and global name, on any device. No-op for a concrete tensor.
void materialize(torch::Tensor& tensor, const std::string& global_name, std::uint64_t seed,
                 torch::Device device = torch::kCPU);

// A module that has parameters which are not rounded to lower precisions: in those they are float32.
class KeepsFloat32 {
 public:
  virtual ~KeepsFloat32() = default;
  virtual bool keeps_float32(const std::string& parameter) const = 0;  // by its own name for it
};
// Those parameters of a model, by its names.
std::vector<std::string> float32_parameters(const torch::nn::Module& module);

// Changes the dtype of floating parameters and buffers, deferred ones without materialising: their values are then the
// same draws, rounded to that dtype; but for what KeepsFloat32 says.
void set_dtype(torch::nn::Module& module, torch::ScalarType type);

// Materialises everything of an unsharded module, by its own names: for one device without a Sharder.
void materialize(torch::nn::Module& module, std::uint64_t seed);

}  // namespace gantry
