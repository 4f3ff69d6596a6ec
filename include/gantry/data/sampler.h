// The order of samples, computed from the position without a list. It depends only on the seed and not on the layout,
// and a run can resume at any position.
#pragma once

#include <cstdint>
#include <vector>

#include "gantry/data/corpus/blend.h"

namespace gantry {

// A random permutation of 0 .. size - 1: a four-round Feistel network with Philox on the next even number of bits,
// repeated until the result is below `size` (Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002).
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch);
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t size_, seed_, epoch_;
  int half_bits_;
};

// Maps global positions to samples of a data set. Without shuffling, position k is sample k modulo the size. With
// shuffling, each pass through the data set uses a new permutation.
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
  std::int64_t size = 0;  // number of samples
  double weight = 1;
};

// Weighted sources as one endless sequence. Blend selects the source of each position, and each source returns its
// samples in the order of its own Sampler.
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
  int replicas = 1;  // size of dp
  int replica = 0;   // this rank's coordinate along dp: all tp and pp ranks of a replica get the same samples
  bool shuffle = true;
  std::uint64_t seed = 1;
  // True: drop the remainder that the replicas do not divide. False: fill it up from the start of the order.
  bool drop_last = false;
};

// The indices of one replica in an epoch, for custom training loops. Every replica gets the same number.
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
