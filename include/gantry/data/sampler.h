// The order of samples: by arithmetic on the position, without a list, so that it depends on the seed alone and not on
// the layout, and so that a run resumes anywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/data/corpus/blend.h"

namespace gantry {

// A permutation of 0 .. size - 1: a four-round Feistel network on Philox over the next even number of bits, walked
// until it falls inside (Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002).
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch);
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t size_, seed_, epoch_;
  int half_bits_;
};

// Which dataset sample stands at a global position. Without shuffling position k is sample k, starting over at the end;
// with it each pass through the dataset is a fresh permutation.
class Sampler {
 public:
  Sampler(std::int64_t dataset_size, bool shuffle, std::uint64_t seed)
      : size_(dataset_size), shuffle_(shuffle), seed_(seed) {}
  std::int64_t sample(std::int64_t position) const;

 private:
  std::int64_t size_;
  bool shuffle_;
  std::uint64_t seed_;
};

// A sample of one of several sources.
struct SourceSample {
  int source = 0;
  std::int64_t sample = 0;
  bool operator==(const SourceSample&) const = default;
};

struct SampledSource {
  std::int64_t size = 0;  // samples
  double weight = 1;
};

// Weighted sources as one endless row: which source stands at a position is Blend's to say, and each source gives its
// samples in the order of a Sampler of its own, starting over at its end.
class BlendedSampler {
 public:
  BlendedSampler(const std::vector<SampledSource>& sources, bool shuffle, std::uint64_t seed);
  SourceSample sample(std::int64_t position) const;

 private:
  Blend blend_;
  std::vector<Sampler> samplers_;
};

struct DistributedSamplerOptions {
  std::int64_t dataset_size = 0;
  int replicas = 1;  // the size of dp
  int replica = 0;   // this rank's coordinate along dp: tp and pp ranks of a replica get the same
  bool shuffle = true;
  std::uint64_t seed = 1;
  bool drop_last =
      false;  // true: drop what does not divide by the replicas; false: fill up from the start of the order
};

// An epoch's indices for one replica, for users' own loops. The same count on every replica.
class DistributedSampler {
 public:
  explicit DistributedSampler(const DistributedSamplerOptions& options) : options_(options) {}
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }
  std::vector<std::int64_t> indices() const;

 private:
  DistributedSamplerOptions options_;
  std::int64_t epoch_ = 0;
};

}  // namespace gantry
