// Creates models without allocating their memory. Under DeferredInit, the in-place initialisation of ordinary modules
// (uniform_, normal_, fill_, mul_, copy_, also through views) is recorded instead of executed; memory from `empty` that
// is not written costs nothing. Later, each rank replays the record only for its slice, with counter-based Philox
// numbers that depend on the seed, the global name and the element. Initial weights are therefore the same in every
// layout.
//
// Implementation: a boxed fallback for the dispatcher's DeferredInit key. A tensor from empty* is deferred. A tensor
// created with values (zeros, ones, arange, tril, ...) is concrete until random values are written to it. Operations
// that read a deferred tensor (item, mm, ...) and random factories are recorded with their inputs, or throw UsageError
// that names the operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "gantry/core/shard_spec.h"

namespace gantry {

// Records initialisation on this thread during its lifetime. Can be nested.
class DeferredInit {
 public:
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

 private:
  bool former_;
};

// True if `tensor` has recorded initialisation that was not replayed yet.
bool is_deferred(const torch::Tensor& tensor);

// Shards a parameter or buffer in place (`set_data`): keeps this rank's part of the result of earlier sharding steps.
// Identity, ties and references of optimizers are preserved. A deferred tensor keeps its record and allocates no
// memory. Does nothing if `shard` has one rank, or if the tensor already has the local size (a tied parameter).
void shard_tensor(torch::Tensor& tensor, const ShardSpec& shard, int rank);

// Frees the memory in place, and drops a record. The tensor then has no elements.
void release_tensor(torch::Tensor& tensor);

// Replays the record of a deferred tensor into its memory, or into memory on `device`, where random numbers are then
// generated (tensors/kernels/draw.h). On any device, every element equals that of an unsharded replay with the same
// seed and global name. Does nothing for a concrete tensor.
void materialize(torch::Tensor& tensor, const std::string& global_name, std::uint64_t seed,
                 torch::Device device = torch::kCPU);

// A module with parameters that stay float32 in lower precisions.
class KeepsFloat32 {
 public:
  virtual ~KeepsFloat32() = default;
  virtual bool keeps_float32(const std::string& parameter) const = 0;  // by the module's own parameter name
};
// Returns the names of all these parameters of a model.
std::vector<std::string> float32_parameters(const torch::nn::Module& module);

// Converts floating-point parameters and buffers to a dtype, except those of KeepsFloat32. Deferred tensors stay
// deferred; their values are the same random numbers, rounded to the dtype.
void set_dtype(torch::nn::Module& module, torch::ScalarType type);

// Materializes all tensors of an unsharded module by its own names, for a single device.
void materialize(torch::nn::Module& module, std::uint64_t seed);

}  // namespace gantry
