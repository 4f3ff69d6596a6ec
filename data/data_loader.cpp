#include "gantry/data/data_loader.h"

#include <algorithm>

#include "gantry/core/error.h"
#include "gantry/data/prefetcher.h"
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

// How many samples the global batch at a position has, where an epoch has so many.
std::int64_t batch_size_at(std::int64_t position, const DataLoaderOptions& options, std::int64_t epoch) {
  return options.keep_last ? std::min(options.global_batch, epoch - position % epoch) : options.global_batch;
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : DataLoader(source_of(std::move(dataset)), options) {}

DataLoader::DataLoader(SampleSource source, const DataLoaderOptions& options)
    : source_(std::move(source)),
      options_(options),
      share_{.shuffle = options.shuffle, .seed = options.seed, .workers = options.workers, .collate = options.collate} {
}

DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;
DataLoader::~DataLoader() = default;

void DataLoader::distribute(int replicas, int replica, bool reads, const OpenProgress& progress) {
  prefetcher_.reset();
  const auto opened = std::move(loader_);  // data that ranks of a process share stay open
  loader_.reset();
  share_.replicas = replicas;
  share_.replica = replica;
  share_.reads = reads || collates();  // no shapes are known in advance
  open(progress);
}

void DataLoader::open(const OpenProgress& progress) { loader(progress); }

void DataLoader::send_ahead_to(torch::Device device) {
  prefetcher_.reset();
  device_ = device;
}

const std::shared_ptr<const Loader>& DataLoader::loader(const OpenProgress& progress) const {
  if (!loader_) loader_ = std::make_shared<const Loader>(source_, share_, progress);
  return loader_;
}

std::int64_t DataLoader::samples() const {
  if (share_.reads) return loader()->samples();
  if (samples_ == 0)
    throw UsageError({"data loader", "the number of samples is unknown, because this rank does not read data", "",
                      "call set_samples() first"});
  return samples_;
}

std::vector<std::string> DataLoader::summaries() const {
  return share_.reads ? loader()->summaries() : std::vector<std::string>();
}

std::int64_t DataLoader::epoch_steps() const {
  const std::int64_t all = samples(), batch = options_.global_batch;
  return std::max<std::int64_t>(1, options_.keep_last ? (all + batch - 1) / batch : all / batch);
}

std::int64_t DataLoader::steps() const {
  if (options_.steps == 0) return epoch_steps();
  return options_.keep_last ? std::min(options_.steps, epoch_steps()) : options_.steps;
}

Batch DataLoader::batch_at(std::int64_t position) const {
  return loader()->batch(position, batch_size_at(position, options_, options_.keep_last ? samples() : 0));
}

Batch DataLoader::batch(std::int64_t step) const {
  std::int64_t position = step * options_.global_batch;
  if (options_.keep_last) position = step / epoch_steps() * samples() + step % epoch_steps() * options_.global_batch;
  return batch_at(position);
}

void DataLoader::seek(std::int64_t position) {
  prefetcher_.reset();
  position_ = position;
}

Batch DataLoader::next() {
  Batch batch;
  if (options_.prefetch > 0 && share_.reads) {
    if (!prefetcher_) {
      auto make = [loader = loader(), options = options_, epoch = options_.keep_last ? samples() : 0,
                   position = position_, sender = AheadSender(device_)]() mutable {
        Batch made = loader->batch(position, batch_size_at(position, options, epoch));
        position += made.global_samples;
        made.ahead = sender.send(made.tensors);
        return made;
      };
      prefetcher_ = std::make_unique<Prefetcher>(std::move(make), options_.prefetch);
    }
    try {
      batch = prefetcher_->next();
    } catch (...) {
      prefetcher_.reset();
      throw;
    }
  } else {
    batch = batch_at(position_);
  }
  position_ += batch.global_samples;
  return batch;
}

}  // namespace gantry
