// What one rank does for one microbatch in a layer, as a list of operations, and what it keeps for the backward: the
// one place that knows a layer's work.
#pragma once

#include <string>
#include <vector>

#include "gantry/planner/layout.h"

namespace gantry::planner {

struct Operation {
  enum class Kind {
    kProduct,      // a matrix product
    kCore,         // attention's fused core
    kElementwise,  // reads and writes
    kReduce,       // all-reduce over tensor ranks
    kHalfReduce,   // all-gather or reduce-scatter over tensor ranks
    kPass,         // keys and values round the context ranks
    kHeads,        // heads for tokens between the context ranks
    kGatherKeys,   // all-gather or reduce-scatter of keys and values over the context ranks
    kExchange,     // tokens between expert ranks
  };
  Kind kind;
  double flops = 0;       // of kPass those of the core, which runs beside it
  double bytes = 0;       // moved by the device; of collectives as planner/collectives.h counts them
  std::string name = {};  // of element-wise work, in Device::operation_efficiency; empty: any
};

struct PartOperations {
  std::vector<Operation> forward, input_gradient, weight_gradient;
  std::vector<Operation> core;  // those of `forward` that attention's core has
  double kept = 0;              // bytes from forward to backward
  double kept_core = 0;         // those of `kept` that the core makes
  double kept_inputs = 0;       // what the part's attention and MLP begin with, for recomputing them
  double kept_whole = 0;        // what the layer begins with
  double kept_attention = 0;    // those of `kept` that come before the MLP's norm
  double working = 0;           // bytes that a backward holds at its most beside what was kept
};

PartOperations layer_operations(const Workload& workload, const models::LayerSpec& layer, const Layout& layout);
// Before the first layer and after the last one, the loss among it.
PartOperations embedding_operations(const Workload& workload, const Layout& layout);
PartOperations head_operations(const Workload& workload, const Layout& layout);

// Of a value of the precision.
double value_bytes(const std::string& precision);

}  // namespace gantry::planner
