#include "gantry/comm/process_group.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "gantry/comm/reduce_kernels.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/tensors/tensor_dict.h"

namespace gantry {

std::int64_t row_elements(const torch::Tensor& tensor) {
  std::int64_t elements = 1;
  for (std::int64_t dim = 1; dim < tensor.dim(); ++dim) elements *= tensor.size(dim);
  return elements;
}

namespace {

// Returns -1, which is not the size of any tensor, if the sizes are invalid.
std::int64_t total_rows(const Sizes& sizes, int ranks) {
  if (static_cast<int>(sizes.size()) != ranks) return -1;
  const bool negative = std::any_of(sizes.begin(), sizes.end(), [](std::int64_t rows) { return rows < 0; });
  return negative ? -1 : std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

void check_gather(const torch::Tensor& full, const torch::Tensor& part, const Sizes& sizes, int rank, int size,
                  const char* call) {
  if (full.dim() > 0 && part.dim() == full.dim() && full.size(0) == total_rows(sizes, size) &&
      part.size(0) == sizes[rank] && row_elements(full) == row_elements(part) &&
      full.scalar_type() == part.scalar_type())
    return;
  throw UsageError({call,
                    fmt::format("the full tensor {} and the part {} do not fit the sizes {} of {} ranks at rank {}",
                                describe(full), describe(part), fmt::join(sizes, ", "), size, rank),
                    "along dim 0, a full tensor with the sum of the sizes and a part with this rank's size", ""});
}

void check_all_to_all(const torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes,
                      int size) {
  if (out.dim() > 0 && in.dim() == out.dim() && in.scalar_type() == out.scalar_type() &&
      out.size(0) == total_rows(out_sizes, size) && in.size(0) == total_rows(in_sizes, size) &&
      row_elements(out) == row_elements(in))
    return;
  throw UsageError(
      {"all_to_all",
       fmt::format("out {} and in {} do not fit the out sizes {} and in sizes {} of {} ranks", describe(out),
                   describe(in), fmt::join(out_sizes, ", "), fmt::join(in_sizes, ", "), size),
       "along dim 0, tensors with the sum of the sizes", ""});
}

}  // namespace

void check_rank(int rank, int size, const char* call) {
  if (rank < 0 || rank >= size)
    throw UsageError(
        {call, fmt::format("rank {} is not in a group of {} ranks", rank, size), fmt::format("0 to {}", size - 1), ""});
}

void check_on_cpu(const torch::Device& device, const char* call, const char* backend) {
  if (device.is_cpu()) return;
  throw UsageError({call, fmt::format("the tensor is on {}, which {} does not support", device.str(), backend),
                    "a CPU tensor", "use comm.backend: nccl, or copy it to the CPU"});
}

const torch::Tensor& Collective::brought() const {
  static const auto* none = new torch::Tensor;
  return in ? *in : target ? *target : *none;
}

void Collective::check(int rank, int size) const {
  switch (kind) {
    case OperationKind::kAllGather:
      return check_gather(*target, *in, *sizes, rank, size, name_of(kind));
    case OperationKind::kReduceScatter:
      check_gather(*in, *target, *sizes, rank, size, name_of(kind));
      [[fallthrough]];
    case OperationKind::kAllReduce:
      sum_item(brought().scalar_type());  // rejects types that cannot be reduced
      return;
    case OperationKind::kBroadcast:
      return check_rank(root, size, name_of(kind));
    case OperationKind::kAllToAll:
      return check_all_to_all(*target, *in, *out_sizes, *sizes, size);
    default:
      return;
  }
}

Work ProcessGroup::call(const Collective& collective) {
  RECORD_FUNCTION(label_of(collective.kind), (std::vector<c10::IValue>{collective.brought()}));
  return start(collective);
}

Work ProcessGroup::all_reduce(torch::Tensor& tensor, ReduceOp op) {
  return call({.kind = OperationKind::kAllReduce, .op = op, .target = &tensor});
}

Work ProcessGroup::all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) {
  return call({.kind = OperationKind::kAllGather, .target = &out, .in = &in, .sizes = &sizes});
}

Work ProcessGroup::reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) {
  return call({.kind = OperationKind::kReduceScatter, .op = op, .target = &out, .in = &in, .sizes = &sizes});
}

Work ProcessGroup::broadcast(torch::Tensor& tensor, int root) {
  return call({.kind = OperationKind::kBroadcast, .root = root, .target = &tensor});
}

Work ProcessGroup::all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes,
                              const Sizes& in_sizes) {
  return call(
      {.kind = OperationKind::kAllToAll, .target = &out, .in = &in, .sizes = &in_sizes, .out_sizes = &out_sizes});
}

Work ProcessGroup::barrier() { return call({}); }

torch::Tensor all_gather_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes) {
  const std::int64_t along = c10::maybe_wrap_dim(dim, in.dim());
  const torch::Tensor rows = in.movedim(along, 0).contiguous();
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  torch::Tensor out = torch::empty(shape, rows.options());
  group.all_gather(out, rows, sizes).wait();
  return along == 0 ? out : out.movedim(0, along).contiguous();
}

PendingPart start_reduce_scatter_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes) {
  const std::int64_t along = c10::maybe_wrap_dim(dim, in.dim());
  const torch::Tensor rows = in.movedim(along, 0).contiguous();
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = sizes[group.rank()];
  torch::Tensor out = torch::empty(shape, rows.options());
  Work work = group.reduce_scatter(out, rows, sizes);
  return {std::move(work), out, along};
}

torch::Tensor PendingPart::wait() {
  work_.wait();
  return dim_ == 0 ? rows_ : rows_.movedim(0, dim_).contiguous();
}

torch::Tensor reduce_scatter_along(ProcessGroup& group, const torch::Tensor& in, int dim, const Sizes& sizes) {
  return start_reduce_scatter_along(group, in, dim, sizes).wait();
}

std::vector<std::int64_t> all_gather_numbers(ProcessGroup& group, std::int64_t value) {
  torch::Tensor out = torch::empty({group.size()}, torch::kInt64);
  group.all_gather(out, torch::tensor({value}, torch::kInt64), Sizes(group.size(), 1)).wait();
  return {out.data_ptr<std::int64_t>(), out.data_ptr<std::int64_t>() + group.size()};
}

double all_reduce_number(ProcessGroup& group, double value, ReduceOp op) {
  torch::Tensor number = torch::tensor({value}, torch::kFloat64);
  group.all_reduce(number, op).wait();
  return *number.const_data_ptr<double>();
}

std::string broadcast_text(ProcessGroup& group, const std::string& text, int root) {
  torch::Tensor length = torch::tensor({static_cast<std::int64_t>(text.size())}, torch::kInt64);
  group.broadcast(length, root).wait();
  torch::Tensor bytes = torch::empty({*length.const_data_ptr<std::int64_t>()}, torch::kUInt8);
  if (group.rank() == root) std::copy(text.begin(), text.end(), reinterpret_cast<char*>(bytes.data_ptr()));
  group.broadcast(bytes, root).wait();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& text) {
  const auto lengths = all_gather_numbers(group, static_cast<std::int64_t>(text.size()));
  if (group.rank() != 0) {
    torch::Tensor bytes = torch::empty({lengths[group.rank()]}, torch::kUInt8);
    std::copy(text.begin(), text.end(), static_cast<char*>(bytes.data_ptr()));
    group.send(bytes, 0, {}).wait();
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int from = 1; from < group.size(); ++from) {
    const torch::Tensor bytes = group.recv({{lengths[from]}, torch::kUInt8}, from, {}).result();
    texts.emplace_back(static_cast<const char*>(bytes.data_ptr()), static_cast<std::size_t>(lengths[from]));
  }
  return texts;
}

}  // namespace gantry
