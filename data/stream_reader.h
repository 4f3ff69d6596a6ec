// Batches of the streams of one replica.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "gantry/data/collate.h"
#include "gantry/data/loaded_batch.h"

namespace gantry {

struct StreamReaderOptions {
  std::int64_t global_batch = 1;
  int replicas = 1, replica = 0;
  int workers = 1;       // number of threads that read the streams
  Collate collate = {};  // see DataLoaderOptions
};

class StreamReader {
 public:
  // Opens the streams of this replica. `places`: where they continue; streams without a place start at their
  // beginning. Throws UsageError if the number of streams is not a multiple of the replicas, or if the batch has fewer
  // samples than there are streams.
  StreamReader(StreamSource source, StreamReaderOptions options, const std::map<int, StreamPlace>& places);

  // Returns the next samples of this replica; fewer if a stream ends, and none after the end of all. The global counts
  // of the batch are 0. Throws InputError if a replica without samples has none to take the entries from. An exception
  // is thrown again by each further call.
  LoadedBatch next();

  LoaderPlace place() const;

 private:
  struct OpenStream {
    int number = 0;
    std::int64_t share = 0;  // samples of each batch
    StreamPlace place;
    std::unique_ptr<SampleStream> stream;
    bool has_ended = false;
  };

  std::vector<TensorDict> read(OpenStream& one) const;
  LoadedBatch read_batch();
  TensorDict first_sample() const;

  StreamSource source_;
  StreamReaderOptions options_;
  std::vector<OpenStream> streams_;
  std::optional<TensorDict> example_;  // a sample that was read, for batches without samples
  std::exception_ptr failure_;
};

}  // namespace gantry
