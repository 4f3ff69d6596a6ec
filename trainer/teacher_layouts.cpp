#include "gantry/trainer/teacher_layouts.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/teacher_exchange.h"

namespace gantry {
namespace {

std::int64_t size_of(const std::vector<Range>& columns) { return Box{{columns}}.shape().front(); }

std::int64_t most_columns(const std::vector<OutputRank>& ranks) {
  std::int64_t most = 0;
  for (const OutputRank& each : ranks) most = std::max(most, size_of(each.columns));
  return most;
}

// The part of an output of a round that a rank of the last stage has. `samples`: by replica.
RankBox part_of(const LogitsLayout& layout, const OutputRank& rank, const std::vector<Range>& samples,
                std::int64_t tokens) {
  return {rank.rank,
          {{{samples[static_cast<std::size_t>(rank.replica)]}, layout.tokens_of(rank, tokens), rank.columns}}};
}

// The type of an output that some ranks have computed.
torch::ScalarType type_of(const torch::Tensor& computed, ProcessGroup& group) {
  const int type = computed.defined() ? static_cast<int>(computed.scalar_type()) : -1;
  return static_cast<torch::ScalarType>(all_reduce_number(group, type, ReduceOp::kMax));
}

// The tokens of a sequence; labels are aligned with the outputs.
std::int64_t tokens_in(const BatchNote& note) {
  const auto labels = std::ranges::find(note.entries, "labels", &BatchNote::Entry::name);
  return labels == note.entries.end() || labels->shape.empty() ? note.tokens_per_sample : labels->shape.front();
}

}  // namespace

std::vector<OutputRank> output_ranks(const Mesh& mesh, const PipelineStageManager& stages, const ShardSpec& head,
                                     std::int64_t columns) {
  std::vector<OutputRank> ranks;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, axis::kPipeline) != stages.rank_of(stages.num_stages() - 1)) continue;
    const int tensor = mesh.coordinate(rank, axis::kTensor);
    OutputRank one{.rank = rank, .replica = mesh.coordinate(rank, axis::kData), .columns = {}, .sends = tensor == 0};
    if (mesh.ranks_of_sequence() > 1) one.context = mesh.coordinate(rank, axis::kContext);
    one.columns = head.sharded() ? head.ranges(tensor, columns) : std::vector<Range>{{0, columns}};
    if (head.sharded()) one.sends = head.owned(tensor, columns) == one.columns;
    ranks.push_back(std::move(one));
  }
  return ranks;
}

LogitsLayout::LogitsLayout(Plugin& plugin, const Boosted& boosted, const OutputSizes& sizes) {
  const Mesh& mesh = plugin.mesh().mesh();
  const PipelineStageManager& stages = plugin.stages();
  const SplitOutputs& split = plugin.split_outputs(boosted);
  const auto dim = split.find("logits");
  logits = output_ranks(mesh, stages, dim == split.end() ? replicate() : dim->second.placement, sizes.vocabulary);
  if (sizes.hidden > 0) hidden = output_ranks(mesh, stages, replicate(), sizes.hidden);
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

std::vector<Range> LogitsLayout::tokens_of(const OutputRank& rank, std::int64_t tokens) const {
  return parts ? parts->shard_of(tokens).runs(rank.context) : std::vector<Range>{{0, tokens}};
}

bool LogitsLayout::has_tokens_of(const LogitsLayout& other) const {
  return !parts || !other.parts || parts->shard_of(1) == other.parts->shard_of(1);
}

const OutputRank* TeacherLayouts::own_rank(const std::vector<OutputRank>& ranks) const {
  const auto own = std::ranges::find(ranks, group_.rank(), &OutputRank::rank);
  return own == ranks.end() ? nullptr : &*own;
}

void TeacherLayouts::compute_outputs(const Batch& batch, const Compute& compute, TeacherLogits& outputs) const {
  const std::vector<BatchNote> notes = note_batches(batch, student_.readers, group_);
  torch::Tensor logits, hidden;
  for (const TeacherRound& round : rounds_of(notes)) {
    const std::vector<Range> teachers = samples_of_teachers(round.size, teacher_.replicas);
    const Batch part =
        move_batch(batch, round, notes[round.example], student_.readers, teachers, teacher_.replica_of_rank, group_);
    const TeacherLogits computed = compute(part);
    const auto take = [&](torch::Tensor& taken, const OutputRanks& ranks, const torch::Tensor& made,
                          const torch::Tensor& last) {
      if (ranks.student.empty()) return;
      const torch::Tensor arrived =
          exchanged({round.samples, teachers, tokens_in(notes[round.example])}, ranks, made, last);
      if (arrived.size(0) > 0) taken = arrived;
    };
    take(logits, {student_.logits, teacher_.logits}, computed.logits, outputs.logits);
    take(hidden, {student_.hidden, teacher_.hidden}, computed.hidden, outputs.hidden);
  }
  // Microbatches without samples may be compared all the same.
  outputs.logits = logits.defined() ? logits : without_samples(batch, student_.logits);
  outputs.hidden = hidden.defined() ? hidden : without_samples(batch, student_.hidden);
  outputs.samples = batch.samples;
}

torch::Tensor TeacherLayouts::without_samples(const Batch& batch, const std::vector<OutputRank>& ranks) const {
  const OutputRank* own = own_rank(ranks);
  if (!own) return {};
  const torch::Tensor labels = batch.tensors.get("labels");
  const std::int64_t tokens = labels.defined() && labels.dim() > 1 ? labels.size(1) : 0;
  return torch::empty({0, size_of(student_.tokens_of(*own, tokens)), size_of(own->columns)},
                      torch::TensorOptions(device_));
}

torch::Tensor TeacherLayouts::exchanged(const Rows& rows, const OutputRanks& ranks, const torch::Tensor& computed,
                                        const torch::Tensor& last) const {
  const torch::ScalarType type = type_of(computed, group_);
  std::vector<RankBox> held, needed;
  Shape shape = {0, 0, 0};
  for (const OutputRank& each : ranks.teacher)
    if (each.sends) held.push_back(part_of(teacher_, each, rows.teachers, rows.tokens));
  for (const OutputRank& each : ranks.student) {
    needed.push_back(part_of(student_, each, rows.students, rows.tokens));
    if (each.rank == group_.rank()) shape = needed.back().box.shape();
  }
  if (const OutputRank* own = own_rank(ranks.teacher);
      own && computed.defined() && computed.size(-1) != size_of(own->columns))
    throw InternalError({"distillation",
                         "the teacher has computed " + describe(computed) + ", but its part has " +
                             std::to_string(size_of(own->columns)) + " columns",
                         "", ""});
  torch::Tensor target = last;
  if (!target.defined() || target.sizes() != torch::IntArrayRef(shape) || target.scalar_type() != type)
    target = torch::empty(shape, torch::TensorOptions(type).device(device_));
  const std::int64_t columns = std::min(most_columns(ranks.student), most_columns(ranks.teacher));
  exchange_blocks({.moves = moves_of_rank(group_.rank(), held, needed),
                   .most_rows = rows.teachers.front().size(),
                   .row_bytes = rows.tokens * columns * static_cast<std::int64_t>(c10::elementSize(type))},
                  computed, target, group_);
  return target;
}

}  // namespace gantry
