#include "gantry/trainer/teacher_batches.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gantry/core/slice.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/teacher_exchange.h"

namespace gantry {
namespace {

std::string note_text(const Batch& batch) {
  nlohmann::json entries = nlohmann::json::array();
  for (const auto& [name, tensor] : batch.tensors)
    entries.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().slice(1).vec()});
  return nlohmann::json{{"samples", batch.samples}, {"tokens", batch.tokens_per_sample}, {"entries", entries}}.dump();
}

BatchNote parsed_note(const std::string& text) {
  const nlohmann::json note = nlohmann::json::parse(text);
  BatchNote parsed{.samples = note.at("samples"), .tokens_per_sample = note.at("tokens"), .entries = {}};
  for (const nlohmann::json& entry : note.at("entries"))
    parsed.entries.push_back({entry.at(0), static_cast<torch::ScalarType>(entry.at(1).get<int>()), entry.at(2)});
  return parsed;
}

// The texts of all ranks, on all ranks.
std::vector<std::string> all_texts(const std::string& mine, ProcessGroup& group) {
  const Sizes lengths = all_gather_numbers(group, static_cast<std::int64_t>(mine.size()));
  torch::Tensor part = torch::empty({lengths[group.rank()]}, torch::kUInt8);
  std::copy(mine.begin(), mine.end(), static_cast<char*>(part.data_ptr()));
  torch::Tensor all = torch::empty({std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})}, torch::kUInt8);
  group.all_gather(all, part, lengths).wait();
  std::vector<std::string> texts;
  const char* next = static_cast<const char*>(all.data_ptr());
  for (const std::int64_t length : lengths) {
    texts.emplace_back(next, static_cast<std::size_t>(length));
    next += length;
  }
  return texts;
}

bool have_equal_shapes(const BatchNote& one, const BatchNote& other) {
  return one.tokens_per_sample == other.tokens_per_sample && one.entries == other.entries;
}

std::int64_t bytes_of_sample(const BatchNote::Entry& entry) {
  return elements_of(entry.shape) * static_cast<std::int64_t>(c10::elementSize(entry.type));
}

// The entries of a batch as one tensor of bytes [samples, bytes].
torch::Tensor packed(const Batch& batch, const BatchNote& note) {
  std::vector<torch::Tensor> parts;
  // A tensor of one element is contiguous with any strides, but it is viewed as bytes only with those of a new one.
  for (const BatchNote::Entry& entry : note.entries)
    parts.push_back(batch.tensors.at(entry.name)
                        .to(torch::kCPU)
                        .clone(at::MemoryFormat::Contiguous)
                        .view({batch.samples, elements_of(entry.shape)})
                        .view(torch::kUInt8));
  return torch::cat(parts, 1);
}

TensorDict unpacked(const torch::Tensor& bytes, const BatchNote& note) {
  TensorDict tensors;
  std::int64_t place = 0;
  for (const BatchNote::Entry& entry : note.entries) {
    Shape shape = entry.shape;
    shape.insert(shape.begin(), bytes.size(0));
    const std::int64_t size = bytes_of_sample(entry);
    const torch::Tensor part = bytes.narrow(1, place, size).clone(at::MemoryFormat::Contiguous);
    tensors.set(entry.name,
                size > 0 ? part.view(entry.type).view(shape) : torch::empty(shape, torch::TensorOptions(entry.type)));
    place += size;
  }
  return tensors;
}

}  // namespace

std::vector<BatchNote> note_batches(const Batch& batch, const std::vector<int>& readers, ProcessGroup& group) {
  const bool reads = std::find(readers.begin(), readers.end(), group.rank()) != readers.end();
  const std::vector<std::string> texts = all_texts(reads ? note_text(batch) : "", group);
  std::vector<BatchNote> notes;
  for (const int reader : readers) notes.push_back(parsed_note(texts[static_cast<std::size_t>(reader)]));
  return notes;
}

std::vector<TeacherRound> rounds_of(const std::vector<BatchNote>& notes) {
  std::vector<TeacherRound> rounds;
  for (std::size_t replica = 0; replica < notes.size(); ++replica) {
    const BatchNote& note = notes[replica];
    if (note.samples == 0) continue;
    auto round = std::find_if(rounds.begin(), rounds.end(),
                              [&](const TeacherRound& each) { return have_equal_shapes(notes[each.example], note); });
    if (round == rounds.end())
      round = rounds.insert(round, {.samples = std::vector<Range>(notes.size()), .size = 0, .example = replica});
    round->samples[replica] = {round->size, round->size + note.samples};
    round->size += note.samples;
  }
  return rounds;
}

std::vector<Range> samples_of_teachers(std::int64_t size, int replicas) {
  return partition(size, /*unit=*/1, replicas, /*allow_empty=*/true);
}

Batch move_batch(const Batch& mine, const TeacherRound& round, const BatchNote& note, const std::vector<int>& readers,
                 const std::vector<Range>& teachers, const std::vector<int>& replica_of_rank, ProcessGroup& group) {
  std::int64_t sample_bytes = 0;
  for (const BatchNote::Entry& entry : note.entries) sample_bytes += bytes_of_sample(entry);
  const auto part_of = [&](int rank, const Range& samples) {
    return RankBox{rank, {{{samples}, {{0, sample_bytes}}}}};
  };
  std::vector<RankBox> held, needed;
  for (std::size_t replica = 0; replica < readers.size(); ++replica)
    held.push_back(part_of(readers[replica], round.samples[replica]));
  for (int rank = 0; rank < group.size(); ++rank)
    needed.push_back(part_of(rank, teachers[static_cast<std::size_t>(replica_of_rank[rank])]));
  const Range& own = teachers[static_cast<std::size_t>(replica_of_rank[group.rank()])];
  const auto reader = std::find(readers.begin(), readers.end(), group.rank());
  const bool sends = reader != readers.end() && round.samples[reader - readers.begin()].size() > 0;
  torch::Tensor bytes = torch::empty({own.size(), sample_bytes}, torch::kUInt8);
  exchange_blocks({.moves = moves_of_rank(group.rank(), held, needed),
                   .most_rows = teachers.front().size(),
                   .row_bytes = sample_bytes},
                  sends ? packed(mine, note) : torch::Tensor(), bytes, group);
  return {.tensors = unpacked(bytes, note),
          .samples = own.size(),
          .first_sample = own.begin,
          .global_samples = round.size,
          .tokens_per_sample = note.tokens_per_sample};
}

}  // namespace gantry
