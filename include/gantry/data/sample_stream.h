// Streams of samples: data that are read in order and whose length is not known.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gantry/tensors/tensor_dict.h"

namespace gantry {

// A stream of samples. Derive your own streams from it. A stream is used by one thread at a time.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Returns the tensors of the next sample, on the CPU, or nothing at the end of the stream. It is not called again
  // after the end. All samples have the same entries; their shapes may differ if the loader has a collate function.
  // A run cannot stop while it waits in this function, and other ranks wait for at most comm.timeout_seconds: a stream
  // of data that are still being made returns nothing if none come.
  virtual std::optional<TensorDict> next() = 0;
  // Returns the place of the stream, as text or any bytes: all that a new stream needs to continue with the sample
  // that next() would return. Called after each batch, and at the end of the stream.
  virtual std::string state() const = 0;
  // Moves a new stream to the place that state() returned, maybe in another process. Called at most once, before
  // next(). If a replica has no samples left when its streams are opened, a stream is also opened at its beginning, for
  // the entries of a sample.
  virtual void load_state(const std::string& state) = 0;
};

// The streams of a run. A batch has global_batch / streams samples of each stream, in the order of the streams; if this
// does not divide evenly, the first streams have one more. Each replica reads streams / replicas of them. So batches do
// not depend on the number of replicas.
struct StreamSource {
  // Creates stream number `stream`, counted from 0, at its beginning. All ranks of a replica create its streams, which
  // must return the same samples on each of them. Called from any thread.
  std::function<std::unique_ptr<SampleStream>(int stream)> open;
  // Number of streams: a multiple of the number of replicas, for all layouts in which the run may be resumed.
  int streams = 1;
};

// The place of a run in one stream.
struct StreamPlace {
  std::int64_t samples = 0;  // number of samples that batches have had of it
  std::string state = {};    // a result of SampleStream::state()
};

// The place of a DataLoader in its data.
struct LoaderPlace {
  // The number of samples in the global order. With streams: the number of samples of the streams below.
  std::int64_t position = 0;
  std::map<int, StreamPlace> streams = {};  // by number; those that this rank reads
};

}  // namespace gantry
