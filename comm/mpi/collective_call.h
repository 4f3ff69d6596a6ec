// A collective as it was called on this rank, ready to be carried out over messages or shared memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/comm/mpi/mpi_tags.h"
#include "gantry/comm/process_group.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// Keeps its vectors' memory when it is filled again.
struct CollectiveCall {
  CallCode code;
  int root = 0;
  std::uint64_t sequence = 0;  // in its group
  char* out = nullptr;         // contiguous, as is `in`; in place both are the same
  char* in = nullptr;
  std::int64_t item = 1;                         // bytes of an element
  std::int64_t elements = 0;                     // of the target
  std::vector<std::int64_t> parts, other_parts;  // elements by rank; other_parts: received by all_to_all

  void fill(const Collective& collective, std::uint64_t number);
  std::int64_t bytes() const { return elements * item; }
  // "all_reduce of float32 [4]"
  std::string describe() const;
  // The result to the caller's tensor where that is not contiguous.
  void give_result();
  // Lets go of all tensors.
  void release();

 private:
  // Storages too: a tensor's owner may give it other data while this is under way.
  torch::Tensor target_, shown_, temporary_;
  c10::Storage kept_out_, kept_in_;
};

}  // namespace gantry
