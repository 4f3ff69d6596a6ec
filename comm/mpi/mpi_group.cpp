#include "gantry/comm/mpi/mpi_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "gantry/comm/group_calls.h"
#include "gantry/comm/reduce_kernels.h"
#include "gantry/core/error.h"
#include "gantry/tensors/batch.h"

namespace gantry {
namespace {

// Up to here every rank sends its whole vector to each other one: one round instead of two.
constexpr std::int64_t kSmallBytes = 32 << 10;

char* bytes_of(const torch::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

std::int64_t first_row(const Sizes& sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
}

// kind, stage, microbatch and entry in the 31 bits that Open MPI's tags have.
int encode(const Tag& tag) {
  constexpr int kStages = 1 << 8, kMicrobatches = 1 << 12, kEntries = 1 << 8;
  if (tag.stage < 0 || tag.stage >= kStages || tag.microbatch < 0 || tag.microbatch >= kMicrobatches || tag.entry < 0 ||
      tag.entry >= kEntries) {
    throw UsageError(
        {"MPI message", describe(tag),
         fmt::format("stages below {}, microbatches below {}, entries below {}", kStages, kMicrobatches, kEntries),
         "use fewer microbatches"});
  }
  return ((static_cast<int>(tag.kind) * kStages + tag.stage) * kMicrobatches + tag.microbatch) * kEntries + tag.entry;
}

}  // namespace

MpiGroup::MpiGroup(const MpiContext& context, std::string label, std::vector<int> ranks, int rank, MPI_Comm messages,
                   MPI_Comm collectives)
    : context_(context),
      label_(std::move(label)),
      ranks_(std::move(ranks)),
      rank_(rank),
      messages_(messages),
      collectives_(collectives) {}

// Freed by MPI_Finalize: freeing here would be collective, and a rank that unwinds from an error must not wait.
MpiGroup::~MpiGroup() = default;

int MpiGroup::next_tag() { return (sequence_++ % (1 << 20)) * 2; }

Work MpiGroup::start(std::string what, std::vector<Stage> stages, std::vector<torch::Tensor> kept) const {
  auto operation = std::make_shared<MpiOperation>(context_, ranks_[static_cast<std::size_t>(rank_)], std::move(what),
                                                  std::move(stages));
  for (auto& tensor : kept) operation->keep(std::move(tensor));
  return start_operation(std::move(operation));
}

Work MpiGroup::send(const torch::Tensor& tensor, int to, const Tag& tag) {
  check_rank(to, size(), "send");
  const int code = encode(tag);
  const torch::Tensor data = tensor.defined() ? tensor.detach().contiguous() : torch::empty({0}, torch::kUInt8);
  const auto post = [=, this](MpiOperation& operation) {
    operation.post_send(data.data_ptr(), static_cast<std::int64_t>(data.nbytes()), to, code, messages_);
  };
  return start(fmt::format("its {} to be received by {}", describe(tag), name_of(to)), {{post, {}}}, {data});
}

Work MpiGroup::recv(const TensorSpec& spec, int from, const Tag& tag) {
  check_rank(from, size(), "recv");
  const int code = encode(tag);
  torch::Tensor data = torch::empty(spec.shape, torch::TensorOptions(spec.dtype));
  const auto bytes = static_cast<std::int64_t>(data.nbytes());
  const std::int64_t first = std::min(bytes, kMpiPieceBytes);
  const std::string what = fmt::format("{} from {}", describe(tag), name_of(from));
  const auto post = [=, this](MpiOperation& operation) {
    operation.post_recv(data.data_ptr(), first, from, code, messages_);
  };
  // Nothing where elements are expected is an absent tensor; the pieces after the first follow only when there is one.
  const auto finish = [=, this](MpiOperation& operation) {
    const std::int64_t got = operation.received_bytes();
    if (got == 0 && bytes > 0) return operation.set_result({});
    if (got != first)
      throw PeerError({what, fmt::format("came with {} bytes", got),
                       fmt::format("{} bytes for [{}]", bytes, fmt::join(spec.shape, ", ")),
                       "make both sides agree on the shape"});
    operation.set_result(data);
    if (bytes > first)
      operation.insert_next({[=, this](MpiOperation& next) {
                               next.post_recv(bytes_of(data) + first, bytes - first, from, code, messages_);
                             },
                             {}});
  };
  return start(what, {{post, finish}}, {data});
}

void MpiGroup::exchange(MpiOperation& operation, const std::function<std::pair<const char*, std::int64_t>(int)>& sent,
                        const std::function<std::pair<char*, std::int64_t>(int)>& received, int tag) const {
  for (int step = 1; step < size(); ++step) {  // each round another pair, so that no rank is everybody's first
    const int from = (rank_ + size() - step) % size(), to = (rank_ + step) % size();
    if (const auto [data, bytes] = received(from); bytes > 0) operation.post_recv(data, bytes, from, tag, collectives_);
    if (const auto [data, bytes] = sent(to); bytes > 0) operation.post_send(data, bytes, to, tag, collectives_);
  }
}

Work MpiGroup::all_reduce(torch::Tensor& tensor, ReduceOp op) {
  const torch::Tensor work = tensor.detach().contiguous();
  return static_cast<std::int64_t>(work.nbytes()) <= kSmallBytes || size() == 1 ? all_reduce_small(tensor, work, op)
                                                                                : all_reduce_large(tensor, work, op);
}

Work MpiGroup::all_reduce_small(torch::Tensor& tensor, const torch::Tensor& work, ReduceOp op) {
  const auto bytes = static_cast<std::int64_t>(work.nbytes());
  const torch::Tensor scratch = torch::empty({size(), std::max<std::int64_t>(1, bytes)}, torch::kUInt8);
  const int tag = next_tag();
  torch::Tensor target = tensor.detach();
  const auto post = [=, this](MpiOperation& operation) {
    exchange(
        operation, [&](int) { return std::pair<const char*, std::int64_t>(bytes_of(work), bytes); },
        [&](int from) { return std::pair(bytes_of(scratch[from]), bytes); }, tag);
  };
  const auto finish = [=, this](MpiOperation&) mutable {
    std::vector<const void*> inputs;
    for (int member = 0; member < size(); ++member)
      inputs.push_back(member == rank_ ? bytes_of(work) : bytes_of(scratch[member]));
    if (size() > 1) reduce_span(bytes_of(work), inputs.data(), size(), work.numel(), work.scalar_type(), op);
    if (!target.is_alias_of(work)) target.copy_(work);
  };
  return start(fmt::format("all_reduce of {} in group '{}'", gantry::describe(work), label_), {{post, finish}},
               {work, scratch});
}

Work MpiGroup::all_reduce_large(torch::Tensor& tensor, const torch::Tensor& work, ReduceOp op) {
  const auto item = static_cast<std::int64_t>(work.element_size());
  auto slices = split_evenly(work.numel(), size());
  const auto mine = slices[static_cast<std::size_t>(rank_)];
  const std::int64_t bytes = (mine.second - mine.first) * item;
  const torch::Tensor scratch = torch::empty({size(), std::max<std::int64_t>(1, bytes)}, torch::kUInt8);
  const int tag = next_tag();
  torch::Tensor target = tensor.detach();
  const auto slice = [=](int member) {
    const auto [begin, end] = slices[static_cast<std::size_t>(member)];
    return std::pair(bytes_of(work) + begin * item, (end - begin) * item);
  };
  const auto scatter = [=, this](MpiOperation& operation) {
    exchange(
        operation, [&](int to) { return std::pair<const char*, std::int64_t>(slice(to)); },
        [&](int from) { return std::pair(bytes_of(scratch[from]), bytes); }, tag);
  };
  const auto reduce = [=, this](MpiOperation&) {
    std::vector<const void*> inputs;
    for (int member = 0; member < size(); ++member)
      inputs.push_back(member == rank_ ? slice(rank_).first : bytes_of(scratch[member]));
    reduce_span(slice(rank_).first, inputs.data(), size(), mine.second - mine.first, work.scalar_type(), op);
  };
  const auto gather = [=, this](MpiOperation& operation) {
    exchange(
        operation, [&](int) { return std::pair<const char*, std::int64_t>(slice(rank_)); },
        [&](int from) { return slice(from); }, tag + 1);
  };
  const auto finish = [=](MpiOperation&) mutable {
    if (!target.is_alias_of(work)) target.copy_(work);
  };
  return start(fmt::format("all_reduce of {} in group '{}'", gantry::describe(work), label_),
               {{scatter, reduce}, {gather, finish}}, {work, scratch});
}

Work MpiGroup::all_gather(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes) {
  check_gather(out, in, sizes, rank_, size(), "all_gather");
  const torch::Tensor part = in.detach().contiguous(),
                      whole = out.is_contiguous() ? out.detach() : torch::empty(out.sizes(), out.options());
  const std::int64_t row = row_elements(part) * static_cast<std::int64_t>(part.element_size());
  const int tag = next_tag();
  torch::Tensor target = out.detach();
  const auto post = [=, this](MpiOperation& operation) {
    exchange(
        operation,
        [&](int) {
          return std::pair<const char*, std::int64_t>(bytes_of(part), static_cast<std::int64_t>(part.nbytes()));
        },
        [&](int from) {
          return std::pair(bytes_of(whole) + first_row(sizes, from) * row, sizes[static_cast<std::size_t>(from)] * row);
        },
        tag);
  };
  const auto finish = [=, this](MpiOperation&) mutable {
    whole.narrow(0, first_row(sizes, rank_), sizes[static_cast<std::size_t>(rank_)]).copy_(part);
    if (!target.is_alias_of(whole)) target.copy_(whole);
  };
  return start(fmt::format("all_gather of {} in group '{}'", gantry::describe(in), label_), {{post, finish}},
               {part, whole});
}

Work MpiGroup::reduce_scatter(torch::Tensor& out, const torch::Tensor& in, const Sizes& sizes, ReduceOp op) {
  check_gather(in, out, sizes, rank_, size(), "reduce_scatter");
  const torch::Tensor whole = in.detach().contiguous();
  const std::int64_t row = row_elements(whole) * static_cast<std::int64_t>(whole.element_size());
  const std::int64_t bytes = sizes[static_cast<std::size_t>(rank_)] * row;
  const torch::Tensor scratch = torch::empty({size(), std::max<std::int64_t>(1, bytes)}, torch::kUInt8);
  const torch::Tensor sum = torch::empty(out.sizes(), out.options().requires_grad(false));
  const int tag = next_tag();
  torch::Tensor target = out.detach();
  const auto post = [=, this](MpiOperation& operation) {
    exchange(
        operation,
        [&](int to) {
          return std::pair<const char*, std::int64_t>(bytes_of(whole) + first_row(sizes, to) * row,
                                                      sizes[static_cast<std::size_t>(to)] * row);
        },
        [&](int from) { return std::pair(bytes_of(scratch[from]), bytes); }, tag);
  };
  const auto finish = [=, this](MpiOperation&) mutable {
    std::vector<const void*> inputs;
    for (int member = 0; member < size(); ++member)
      inputs.push_back(member == rank_ ? bytes_of(whole) + first_row(sizes, rank_) * row : bytes_of(scratch[member]));
    reduce_span(bytes_of(sum), inputs.data(), size(), sum.numel(), sum.scalar_type(), op);
    target.copy_(sum);
  };
  return start(fmt::format("reduce_scatter of {} in group '{}'", gantry::describe(in), label_), {{post, finish}},
               {whole, scratch, sum});
}

Work MpiGroup::broadcast(torch::Tensor& tensor, int root) {
  check_rank(root, size(), "broadcast");
  const torch::Tensor work = tensor.detach().contiguous();
  const auto bytes = static_cast<std::int64_t>(work.nbytes());
  const int tag = next_tag();
  torch::Tensor target = tensor.detach();
  const auto post = [=, this](MpiOperation& operation) {
    const std::int64_t sent = rank_ == root ? bytes : 0;
    exchange(
        operation, [&](int) { return std::pair<const char*, std::int64_t>(bytes_of(work), sent); },
        [&](int from) { return std::pair(bytes_of(work), from == root ? bytes : 0); }, tag);
  };
  const auto finish = [=](MpiOperation&) mutable {
    if (!target.is_alias_of(work)) target.copy_(work);
  };
  return start(fmt::format("broadcast of {} in group '{}'", gantry::describe(work), label_), {{post, finish}}, {work});
}

Work MpiGroup::all_to_all(torch::Tensor& out, const torch::Tensor& in, const Sizes& out_sizes, const Sizes& in_sizes) {
  const torch::Tensor sent = in.detach().contiguous(),
                      got = torch::empty(out.sizes(), out.options().requires_grad(false));
  const std::int64_t row = row_elements(sent) * static_cast<std::int64_t>(sent.element_size());
  const int tag = next_tag();
  torch::Tensor target = out.detach();
  const auto post = [=, this](MpiOperation& operation) {
    exchange(
        operation,
        [&](int to) {
          return std::pair<const char*, std::int64_t>(bytes_of(sent) + first_row(in_sizes, to) * row,
                                                      in_sizes[static_cast<std::size_t>(to)] * row);
        },
        [&](int from) {
          return std::pair(bytes_of(got) + first_row(out_sizes, from) * row,
                           out_sizes[static_cast<std::size_t>(from)] * row);
        },
        tag);
  };
  const auto finish = [=, this](MpiOperation&) mutable {
    const auto own = out_sizes[static_cast<std::size_t>(rank_)];
    got.narrow(0, first_row(out_sizes, rank_), own).copy_(sent.narrow(0, first_row(in_sizes, rank_), own));
    target.copy_(got);
  };
  return start(fmt::format("all_to_all of {} in group '{}'", gantry::describe(in), label_), {{post, finish}},
               {sent, got});
}

Work MpiGroup::barrier() {
  const torch::Tensor bytes = torch::zeros({size(), 2}, torch::kUInt8);
  const int tag = next_tag();
  const auto post = [=, this](MpiOperation& operation) {
    exchange(
        operation, [&](int to) { return std::pair<const char*, std::int64_t>(bytes_of(bytes[to]), 1); },
        [&](int from) { return std::pair(bytes_of(bytes[from]) + 1, 1); }, tag);
  };
  return start(fmt::format("barrier of group '{}'", label_), {{post, {}}}, {bytes});
}

void MpiGroup::abort(const std::string& reason) {
  fmt::print(stderr, "error: {}\n", reason);
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, PeerError::kExitCode);
}

}  // namespace gantry
