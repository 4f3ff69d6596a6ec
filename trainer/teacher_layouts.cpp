#include "gantry/trainer/teacher_layouts.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/teacher_exchange.h"

namespace gantry {
namespace {

std::int64_t size_of(const std::vector<Range>& columns) { return Box{{columns}}.shape().front(); }

std::int64_t most_columns(const LogitsLayout& layout) {
  std::int64_t most = 0;
  for (const LogitsRank& each : layout.logits) most = std::max(most, size_of(each.columns));
  return most;
}

// The logits [samples, tokens, vocabulary] of a round that a rank of the last stage has. `samples`: by replica.
RankPart part_of(const LogitsLayout& layout, const LogitsRank& rank, const std::vector<Range>& samples,
                 std::int64_t tokens) {
  return {rank.rank,
          {{{samples[static_cast<std::size_t>(rank.replica)]}, layout.tokens_of(rank, tokens), rank.columns}}};
}

// The type and the number of tokens of the logits that some ranks have computed.
struct LogitsForm {
  torch::ScalarType type;
  std::int64_t tokens;
};

LogitsForm form_of(const torch::Tensor& computed, ProcessGroup& group) {
  torch::Tensor numbers = torch::tensor({-1, 0}, torch::kInt64);
  if (computed.defined())
    numbers = torch::tensor({static_cast<std::int64_t>(computed.scalar_type()), computed.size(1)}, torch::kInt64);
  group.all_reduce(numbers, ReduceOp::kMax).wait();
  const auto* agreed = numbers.const_data_ptr<std::int64_t>();
  return {static_cast<torch::ScalarType>(agreed[0]), agreed[1]};
}

}  // namespace

std::vector<LogitsRank> logits_ranks(const Mesh& mesh, const PipelineStageManager& stages, const ShardSpec& head,
                                     std::int64_t vocabulary) {
  std::vector<LogitsRank> ranks;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, axis::kPipeline) != stages.rank_of(stages.num_stages() - 1)) continue;
    const int tensor = mesh.coordinate(rank, axis::kTensor);
    LogitsRank one{.rank = rank, .replica = mesh.coordinate(rank, axis::kData), .columns = {}, .sends = tensor == 0};
    if (mesh.ranks_of_sequence() > 1) one.context = mesh.coordinate(rank, axis::kContext);
    one.columns = head.sharded() ? head.ranges(tensor, vocabulary) : std::vector<Range>{{0, vocabulary}};
    if (head.sharded()) one.sends = head.owned(tensor, vocabulary) == one.columns;
    ranks.push_back(std::move(one));
  }
  return ranks;
}

LogitsLayout::LogitsLayout(Plugin& plugin, const Boosted& boosted, std::int64_t vocabulary) {
  const Mesh& mesh = plugin.mesh().mesh();
  const PipelineStageManager& stages = plugin.stages();
  const SplitOutputs& split = plugin.split_outputs(boosted);
  const auto dim = split.find("logits");
  logits = logits_ranks(mesh, stages, dim == split.end() ? replicate() : dim->second.placement, vocabulary);
  replicas = mesh.axis_size(axis::kData);
  readers.assign(static_cast<std::size_t>(replicas), -1);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const int replica = mesh.coordinate(rank, axis::kData);
    replica_of_rank.push_back(replica);
    int& reader = readers[static_cast<std::size_t>(replica)];
    if (reader < 0 && mesh.coordinate(rank, axis::kPipeline) == stages.rank_of(0)) reader = rank;
  }
  parts = plugin.sequence_parts(boosted);
}

std::vector<Range> LogitsLayout::tokens_of(const LogitsRank& rank, std::int64_t tokens) const {
  return parts ? parts->shard_of(tokens).runs(rank.context) : std::vector<Range>{{0, tokens}};
}

const LogitsRank* TeacherLayouts::own_rank(const LogitsLayout& layout) const {
  const auto own = std::ranges::find(layout.logits, group_.rank(), &LogitsRank::rank);
  return own == layout.logits.end() ? nullptr : &*own;
}

torch::Tensor TeacherLayouts::logits_of(const Batch& batch, const Compute& compute, const torch::Tensor& last) const {
  const std::vector<BatchNote> notes = note_batches(batch, student_.readers, group_);
  torch::Tensor logits;
  for (const TeacherRound& round : rounds_of(notes)) {
    const std::vector<Range> teachers = samples_of_teachers(round.size, teacher_.replicas);
    const Batch part =
        move_batch(batch, round, notes[round.example], student_.readers, teachers, teacher_.replica_of_rank, group_);
    const torch::Tensor arrived = exchanged(round, teachers, compute(part), last);
    if (arrived.size(0) > 0) logits = arrived;
  }
  const LogitsRank* own = own_rank(student_);
  if (!own || logits.defined()) return logits;
  // Microbatches without samples may be compared all the same.
  const torch::Tensor labels = batch.tensors.get("labels");
  const std::int64_t tokens = labels.defined() && labels.dim() > 1 ? labels.size(1) : 0;
  return torch::empty({0, size_of(student_.tokens_of(*own, tokens)), size_of(own->columns)},
                      torch::TensorOptions(device_));
}

torch::Tensor TeacherLayouts::exchanged(const TeacherRound& round, const std::vector<Range>& teachers,
                                        const torch::Tensor& computed, const torch::Tensor& last) const {
  const auto [type, tokens] = form_of(computed, group_);
  std::vector<RankPart> held, needed;
  Shape shape = {0, 0, 0};
  for (const LogitsRank& each : teacher_.logits)
    if (each.sends) held.push_back(part_of(teacher_, each, teachers, tokens));
  for (const LogitsRank& each : student_.logits) {
    needed.push_back(part_of(student_, each, round.samples, tokens));
    if (each.rank == group_.rank()) shape = needed.back().box.shape();
  }
  if (const LogitsRank* own = own_rank(teacher_);
      own && computed.defined() && computed.size(-1) != size_of(own->columns))
    throw InternalError({"distillation",
                         "the teacher has computed " + describe(computed) + ", but its part of the vocabulary has " +
                             std::to_string(size_of(own->columns)) + " tokens",
                         "", ""});
  torch::Tensor target = last;
  if (!target.defined() || target.sizes() != torch::IntArrayRef(shape) || target.scalar_type() != type)
    target = torch::empty(shape, torch::TensorOptions(type).device(device_));
  const std::int64_t columns = std::min(most_columns(student_), most_columns(teacher_));
  exchange_blocks({.moves = moves_of_rank(group_.rank(), held, needed),
                   .most_rows = teachers.front().size(),
                   .row_bytes = tokens * columns * static_cast<std::int64_t>(c10::elementSize(type))},
                  computed, target, group_);
  return target;
}

}  // namespace gantry
