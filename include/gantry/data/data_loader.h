// Batches for a training loop. The loader is created as for one device; boosting distributes it over the replicas.
#pragma once

#include <memory>

#include "gantry/data/collate.h"
#include "gantry/data/loader.h"
#include "gantry/data/sample_stream.h"

namespace gantry {

class Prefetcher;
class StreamReader;
struct LoadedBatch;

// Options of a DataLoader.
struct DataLoaderOptions {
  std::int64_t global_batch = 1;
  bool shuffle = true;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;  // number of steps of an iteration; 0: one epoch
  int prefetch = 0;        // number of batches that a thread prepares before next()
  // Number of threads that read the samples of a batch of a slow data set (Dataset::is_slow), or that read streams.
  int workers = 1;
  // True: an epoch ends with a smaller batch of the remaining samples. False: all batches have the same size, and
  // continue in the next epoch.
  bool keep_last = false;
  // Makes a batch of its samples, whose lengths may differ. Not set: the samples have the same shapes and are stacked.
  // If it is set, every rank reads the samples of its replica.
  Collate collate = {};
};

// `for (Batch& batch : loader)` returns this replica's batches, step by step. A second iteration continues after the
// last batch. The position is a number of samples in the global order, so it is valid for every batch size and layout.
//
// A loader of streams has no known length: shuffle, seed and keep_last have no effect, and batch(), steps() of an epoch
// and seek(position) throw UsageError. When a stream ends, batches have fewer samples, and none after the end of all
// streams: see is_at_end(), and RunStops::out_of_samples() for all replicas.
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);
  DataLoader(SampleSource source, const DataLoaderOptions& options);
  DataLoader(StreamSource source, const DataLoaderOptions& options);
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;
  ~DataLoader();

  // From now on, returns the samples of one of `replicas` replicas. All tp and pp ranks of a replica get the same
  // batches. Ranks with reads = false get only shapes, and need set_samples(). Opens the source if `reads` is true.
  // Throws UsageError if streams cannot be split over the replicas.
  void distribute(int replicas, int replica, bool reads = true, const OpenProgress& progress = no_progress);
  // Opens the source now instead of on first use.
  void open(const OpenProgress& progress = no_progress);
  // With prefetch, prepared batches are also copied to this device in advance (Batch::ahead).
  void send_ahead_to(torch::Device device);
  const std::vector<SampleEntry>& entries() const { return source_.entries; }
  bool reads_streams() const { return streams_.open != nullptr; }
  int streams() const { return streams_.streams; }
  // True if the shapes of batches are not known in advance, so that every rank reads the samples of its replica.
  bool all_ranks_read() const { return options_.collate != nullptr || reads_streams(); }
  std::int64_t global_batch() const { return options_.global_batch; }
  std::int64_t samples() const;                // samples per epoch: the sum of the sizes of all sources; streams: 0
  std::vector<std::string> summaries() const;  // descriptions of its data for users; empty if this rank does not read
  void set_samples(std::int64_t samples) { samples_ = samples; }

  // Returns the next batch; on every rank its own part of it. If it throws, the next call throws the same error again.
  Batch next();
  // The number of samples that next() has returned so far, and where it continues.
  std::int64_t position() const { return place_.position; }
  void seek(std::int64_t position);
  // The place after the batches that next() has returned. seek() accepts the place of any loader of the same streams.
  // The batch size may differ; the number of replicas may differ if the place has all streams. A place without streams
  // is the beginning. Throws UsageError if a stream of this replica is missing.
  LoaderPlace place() const;
  void seek(LoaderPlace place);
  // True if the streams of this replica have ended, so that next() returns no samples. Reads the next batch in advance.
  // False for data sets, which start again.
  bool is_at_end();

  // Returns this replica's part of the global batch of `step`, counted from 0. Does not change the position.
  Batch batch(std::int64_t step) const;
  std::int64_t steps() const;

  class Iterator {
   public:
    Iterator(DataLoader* loader, std::int64_t left) : loader_(loader), left_(left) { load(); }
    Batch& operator*() { return batch_; }
    Iterator& operator++() {
      --left_;
      load();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return left_ != other.left_; }

   private:
    void load() {
      if (left_ > 0) batch_ = loader_->next();
    }
    DataLoader* loader_;
    std::int64_t left_;
    Batch batch_;
  };
  Iterator begin() { return {this, steps()}; }
  Iterator end() { return {this, 0}; }

 private:
  const std::shared_ptr<const Loader>& loader(const OpenProgress& progress = no_progress) const;
  std::int64_t epoch_steps() const;
  Batch batch_at(std::int64_t position) const;
  const std::shared_ptr<StreamReader>& reader() const;
  LoaderPlace own_place(const LoaderPlace& place) const;  // without the streams of other replicas
  std::function<LoadedBatch()> maker() const;
  LoadedBatch load();
  void refuse_streams(const char* call, const char* remedy) const;

  SampleSource source_;
  StreamSource streams_ = {};  // in place of source_
  DataLoaderOptions options_;
  LoaderOptions share_;
  torch::Device device_ = torch::kCPU;
  mutable std::shared_ptr<const Loader> loader_;  // created on first use
  mutable std::shared_ptr<StreamReader> reader_;  // the same for streams; it may be ahead of place_
  mutable LoaderPlace place_;                     // that of the streams is known when they are open
  std::int64_t samples_ = 0;                      // if this rank does not read
  std::unique_ptr<LoadedBatch> ahead_;            // the batch that is_at_end() has read
  std::unique_ptr<Prefetcher> prefetcher_;        // null without prefetch, and before the first next()
};

}  // namespace gantry
