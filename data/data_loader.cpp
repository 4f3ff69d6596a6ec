#include "gantry/data/data_loader.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "gantry/core/error.h"
#include "gantry/data/loaded_batch.h"
#include "gantry/data/prefetcher.h"
#include "gantry/data/stream_reader.h"
#include "gantry/tensors/sent_ahead.h"

namespace gantry {
namespace {

SampleSource source_of(std::shared_ptr<const Dataset> dataset) {
  return {.entries = dataset->entries(),
          .sequence_length = dataset->sequence_length(),
          .open = [dataset](const OpenProgress&) {
            return std::vector<WeightedDataset>{{dataset, 1}};
          }};
}

// Returns the number of samples in the global batch at a position. `epoch`: number of samples in an epoch.
std::int64_t batch_size_at(std::int64_t position, const DataLoaderOptions& options, std::int64_t epoch) {
  return options.keep_last ? std::min(options.global_batch, epoch - position % epoch) : options.global_batch;
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : DataLoader(source_of(std::move(dataset)), options) {}

DataLoader::DataLoader(SampleSource source, const DataLoaderOptions& options)
    : source_(std::move(source)),
      options_(options),
      share_{.shuffle = options.shuffle, .seed = options.seed, .workers = options.workers} {
  if (!options_.collate) options_.collate = source_.collate;
  share_.collate = options_.collate;
}

DataLoader::DataLoader(StreamSource source, const DataLoaderOptions& options) : DataLoader(SampleSource{}, options) {
  if (!source.open)
    throw UsageError({"data loader", "StreamSource::open is not set", "a function that creates a stream", ""});
  streams_ = std::move(source);
}

DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;
DataLoader::~DataLoader() = default;

void DataLoader::distribute(int replicas, int replica, bool reads, const OpenProgress& progress) {
  prefetcher_.reset();
  ahead_.reset();
  reader_.reset();
  const auto opened = std::move(loader_);  // keeps data open that the ranks of a process share
  loader_.reset();
  share_.replicas = replicas;
  share_.replica = replica;
  share_.reads = reads || all_ranks_read();
  open(progress);
}

void DataLoader::open(const OpenProgress& progress) {
  if (reads_streams())
    reader();
  else
    loader(progress);
}

void DataLoader::send_ahead_to(torch::Device device) {
  if (prefetcher_ || ahead_) {
    prefetcher_.reset();
    ahead_.reset();
    reader_.reset();
  }
  device_ = device;
}

const std::shared_ptr<const Loader>& DataLoader::loader(const OpenProgress& progress) const {
  if (!loader_) loader_ = std::make_shared<const Loader>(source_, share_, progress);
  return loader_;
}

const std::shared_ptr<StreamReader>& DataLoader::reader() const {
  if (!reader_) {
    reader_ = std::make_shared<StreamReader>(streams_,
                                             StreamReaderOptions{.global_batch = options_.global_batch,
                                                                 .replicas = share_.replicas,
                                                                 .replica = share_.replica,
                                                                 .workers = options_.workers,
                                                                 .collate = options_.collate},
                                             place_.streams);
    place_ = reader_->place();
  }
  return reader_;
}

void DataLoader::refuse_streams(const char* call, const char* remedy) const {
  if (reads_streams())
    throw UsageError({fmt::format("DataLoader::{}", call), "the length of streams is not known", "a data set", remedy});
}

std::int64_t DataLoader::samples() const {
  if (reads_streams()) return 0;
  if (share_.reads) return loader()->samples();
  if (samples_ == 0)
    throw UsageError({"data loader", "the number of samples is unknown, because this rank does not read data", "",
                      "call set_samples() first"});
  return samples_;
}

std::vector<std::string> DataLoader::summaries() const {
  return share_.reads && !reads_streams() ? loader()->summaries() : std::vector<std::string>();
}

std::int64_t DataLoader::epoch_steps() const {
  refuse_streams("steps", "set DataLoaderOptions::steps, or call next() until RunStops::out_of_samples()");
  const std::int64_t all = samples(), batch = options_.global_batch;
  return std::max<std::int64_t>(1, options_.keep_last ? (all + batch - 1) / batch : all / batch);
}

std::int64_t DataLoader::steps() const {
  if (options_.steps == 0) return epoch_steps();
  return options_.keep_last && !reads_streams() ? std::min(options_.steps, epoch_steps()) : options_.steps;
}

Batch DataLoader::batch_at(std::int64_t position) const {
  return loader()->batch(position, batch_size_at(position, options_, options_.keep_last ? samples() : 0));
}

Batch DataLoader::batch(std::int64_t step) const {
  refuse_streams("batch", "call next(); evaluate on a data set");
  std::int64_t position = step * options_.global_batch;
  if (options_.keep_last) position = step / epoch_steps() * samples() + step % epoch_steps() * options_.global_batch;
  return batch_at(position);
}

LoaderPlace DataLoader::place() const {
  if (reads_streams() && place_.streams.empty()) reader();
  return place_;
}

void DataLoader::seek(std::int64_t position) {
  refuse_streams("seek", "pass a result of place()");
  seek(LoaderPlace{.position = position});
}

void DataLoader::seek(LoaderPlace place) {
  prefetcher_.reset();
  ahead_.reset();
  reader_.reset();
  place_ = reads_streams() && !place.streams.empty() ? own_place(place) : std::move(place);
}

LoaderPlace DataLoader::own_place(const LoaderPlace& place) const {
  LoaderPlace own;
  const int each = streams_.streams / share_.replicas, first = share_.replica * each;
  for (int number = first; number < first + each; ++number) {
    const auto found = place.streams.find(number);
    if (found == place.streams.end())
      throw UsageError({"DataLoader::seek", fmt::format("the place has no state of stream {}", number),
                        "all streams of this replica", "pass a result of place()"});
    own.position += found->second.samples;
    own.streams.insert(*found);
  }
  return own;
}

// Returns a function that makes one batch after the other.
std::function<LoadedBatch()> DataLoader::maker() const {
  if (reads_streams()) return [reader = reader()] { return reader->next(); };
  return [loader = loader(), options = options_, epoch = options_.keep_last ? samples() : 0,
          position = place_.position]() mutable {
    LoadedBatch made{.batch = loader->batch(position, batch_size_at(position, options, epoch)), .after = {}};
    position += made.batch.global_samples;
    made.after.position = position;
    return made;
  };
}

LoadedBatch DataLoader::load() {
  if (options_.prefetch == 0 || !share_.reads) return maker()();
  if (!prefetcher_)
    prefetcher_ = std::make_unique<Prefetcher>(
        [make = maker(), sender = AheadSender(device_)]() mutable {
          LoadedBatch made = make();
          made.batch.ahead = sender.send(made.batch.tensors);
          return made;
        },
        options_.prefetch);
  try {
    return prefetcher_->next();
  } catch (...) {
    prefetcher_.reset();
    reader_.reset();  // it may be ahead of the batches that next() has returned
    throw;
  }
}

bool DataLoader::is_at_end() {
  if (!reads_streams()) return false;
  if (!ahead_) ahead_ = std::make_unique<LoadedBatch>(load());
  return ahead_->batch.samples == 0;
}

Batch DataLoader::next() {
  LoadedBatch made = ahead_ ? std::move(*std::exchange(ahead_, nullptr)) : load();
  place_ = std::move(made.after);
  return std::move(made.batch);
}

}  // namespace gantry
