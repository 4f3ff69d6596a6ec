#include "gantry/comm/nccl/nccl_calls.h"

#include <vector>

#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

ncclDataType_t type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return ncclFloat32;
    case torch::kFloat64:
      return ncclFloat64;
    case torch::kBFloat16:
      return ncclBfloat16;
    case torch::kFloat16:
      return ncclFloat16;
    case torch::kInt64:
      return ncclInt64;
    case torch::kInt32:
      return ncclInt32;
    default:
      return ncclUint8;  // Collective::check() rejects all other types
  }
}

ncclRedOp_t operation_of(ReduceOp op) {
  return op == ReduceOp::kSum ? ncclSum : op == ReduceOp::kMax ? ncclMax : ncclMin;
}

// Start and size of each member's rows, in bytes.
struct Parts {
  std::vector<std::size_t> begin, bytes;
  bool even = true;

  Parts(const Sizes& sizes, const torch::Tensor& tensor) {
    const auto row = static_cast<std::size_t>(row_elements(tensor)) * tensor.element_size();
    std::size_t at = 0;
    for (const std::int64_t size : sizes) {
      begin.push_back(at);
      bytes.push_back(static_cast<std::size_t>(size) * row);
      at += bytes.back();
      even = even && size == sizes.front();
    }
  }
};

}  // namespace

ncclResult_t call_nccl(const Collective& call, char* out, const char* in, int size, ncclComm_t communicator,
                       cudaStream_t stream) {
  const torch::Tensor& target = *call.target;
  const auto type = type_of(target.scalar_type());
  const auto op = operation_of(call.op);
  const std::size_t item = target.element_size();
  ncclResult_t code = ncclSuccess;
  switch (call.kind) {
    case OperationKind::kAllReduce:
      return ncclAllReduce(out, out, target.numel(), type, op, communicator, stream);
    case OperationKind::kBroadcast:
      return ncclBroadcast(out, out, target.nbytes(), ncclUint8, call.root, communicator, stream);
    case OperationKind::kAllGather: {
      const Parts parts(*call.sizes, target);
      if (parts.even) return ncclAllGather(in, out, parts.bytes[0], ncclUint8, communicator, stream);
      for (int root = 0; root < size && code == ncclSuccess; ++root)
        if (parts.bytes[root] > 0)
          code = ncclBroadcast(in, out + parts.begin[root], parts.bytes[root], ncclUint8, root, communicator, stream);
      return code;
    }
    case OperationKind::kReduceScatter: {
      const Parts parts(*call.sizes, *call.in);
      if (parts.even) return ncclReduceScatter(in, out, parts.bytes[0] / item, type, op, communicator, stream);
      for (int root = 0; root < size && code == ncclSuccess; ++root)
        if (parts.bytes[root] > 0)
          code =
              ncclReduce(in + parts.begin[root], out, parts.bytes[root] / item, type, op, root, communicator, stream);
      return code;
    }
    case OperationKind::kAllToAll: {
      const Parts received(*call.out_sizes, target), sent(*call.sizes, *call.in);
      for (int peer = 0; peer < size && code == ncclSuccess; ++peer) {
        if (sent.bytes[peer] > 0)
          code = ncclSend(in + sent.begin[peer], sent.bytes[peer], ncclUint8, peer, communicator, stream);
        if (code == ncclSuccess && received.bytes[peer] > 0)
          code = ncclRecv(out + received.begin[peer], received.bytes[peer], ncclUint8, peer, communicator, stream);
      }
      return code;
    }
    default:
      return code;
  }
}

}  // namespace gantry
