#include "gantry/data/stream_reader.h"

#include <fmt/format.h>
#include <utility>

#include "gantry/core/base/parallel_for.h"
#include "gantry/core/error.h"
#include "gantry/data/collate_samples.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

void require_streams(const StreamSource& source, const StreamReaderOptions& options) {
  if (source.streams < 1 || source.streams % options.replicas != 0)
    throw UsageError({"stream source",
                      fmt::format("{} streams can't be split over {} replicas", source.streams, options.replicas),
                      fmt::format("a multiple of {} streams", options.replicas),
                      "set StreamSource::streams, or another parallel.data"});
  if (options.global_batch < source.streams)
    throw UsageError({"stream source",
                      fmt::format("a batch has {} samples of {} streams", options.global_batch, source.streams),
                      "at least one sample of each stream", "raise DataLoaderOptions::global_batch"});
}

std::unique_ptr<SampleStream> open_stream(const StreamSource& source, int number) {
  std::unique_ptr<SampleStream> stream = source.open(number);
  if (!stream)
    throw UsageError({"stream source", fmt::format("`open` has returned no stream for number {}", number), "a stream",
                      "return an empty stream if there is nothing to read"});
  return stream;
}

void require_tensors(const TensorDict& sample, int number, std::int64_t index) {
  for (const auto& [name, tensor] : sample)
    if (!tensor.defined() || !tensor.is_cpu())
      throw UsageError({fmt::format("stream {}", number),
                        fmt::format("the entry '{}' of sample {} is {}", name, index, describe(tensor)),
                        "a tensor on the CPU", ""});
  if (sample.empty())
    throw UsageError({fmt::format("stream {}", number), fmt::format("sample {} has no tensors", index), "at least one",
                      "return std::nullopt at the end of the stream"});
}

}  // namespace

StreamReader::StreamReader(StreamSource source, StreamReaderOptions options, const std::map<int, StreamPlace>& places)
    : source_(std::move(source)), options_(std::move(options)) {
  require_streams(source_, options_);
  if (!options_.collate) options_.collate = pad_to_longest({});
  const auto shares = split_evenly(options_.global_batch, source_.streams);
  const int each = source_.streams / options_.replicas;
  for (int number = options_.replica * each; number < (options_.replica + 1) * each; ++number) {
    const auto [begin, end] = shares[static_cast<std::size_t>(number)];
    OpenStream one{.number = number, .share = end - begin, .place = {}, .stream = open_stream(source_, number)};
    if (const auto place = places.find(number); place != places.end()) {
      one.place = place->second;
      one.stream->load_state(one.place.state);
    } else {
      one.place.state = one.stream->state();
    }
    streams_.push_back(std::move(one));
  }
}

LoaderPlace StreamReader::place() const {
  LoaderPlace all;
  for (const OpenStream& one : streams_) {
    all.position += one.place.samples;
    all.streams[one.number] = one.place;
  }
  return all;
}

LoadedBatch StreamReader::next() {
  if (failure_) std::rethrow_exception(failure_);
  try {
    return read_batch();
  } catch (...) {
    failure_ = std::current_exception();  // some streams are past samples of the batch
    throw;
  }
}

std::vector<TensorDict> StreamReader::read(OpenStream& one) const {
  std::vector<TensorDict> samples;
  while (!one.has_ended && static_cast<std::int64_t>(samples.size()) < one.share) {
    std::optional<TensorDict> sample = one.stream->next();
    one.has_ended = !sample;
    if (!sample) break;
    require_tensors(*sample, one.number, one.place.samples + static_cast<std::int64_t>(samples.size()));
    samples.push_back(std::move(*sample));
  }
  one.place.samples += static_cast<std::int64_t>(samples.size());
  one.place.state = one.stream->state();
  return samples;
}

LoadedBatch StreamReader::read_batch() {
  std::vector<std::vector<TensorDict>> read_of(streams_.size());
  parallel_for(streams_.size(), static_cast<std::size_t>(options_.workers),
               [&](std::size_t i) { read_of[i] = read(streams_[i]); });
  std::vector<TensorDict> samples;
  for (auto& some : read_of)
    for (TensorDict& sample : some) samples.push_back(std::move(sample));
  const auto count = static_cast<std::int64_t>(samples.size());
  if (count == 0 && !example_) example_ = first_sample();
  if (count == 0) samples.push_back(*example_);
  LoadedBatch made{.batch = {.tensors = collate_samples(options_.collate, samples), .samples = count},
                   .after = place()};
  example_ = samples.back();
  for (auto& [name, tensor] : made.batch.tensors) tensor = tensor.narrow(0, 0, count);
  return made;
}

// For the names, types and shapes of a batch without samples, after a run was resumed at the end of its streams.
TensorDict StreamReader::first_sample() const {
  for (const OpenStream& one : streams_)
    if (std::optional<TensorDict> sample = open_stream(source_, one.number)->next()) return std::move(*sample);
  throw InputError({fmt::format("stream {}", streams_.front().number),
                    fmt::format("the streams of replica {} have no samples", options_.replica),
                    "at least one sample for each replica", "use fewer streams"});
}

}  // namespace gantry
