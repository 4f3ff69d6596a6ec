#include "gantry/data/loader.h"

namespace gantry {

Loader::Loader(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options), sampler_(dataset_->size(), options.shuffle, options.seed) {}

Batch Loader::batch(std::int64_t step) const {
  const auto pieces = split_evenly(options_.global_batch, options_.replicas);
  const auto replica = static_cast<std::size_t>(options_.replica);
  const auto [begin, end] =
      replica < pieces.size() ? pieces[replica] : std::pair(options_.global_batch, options_.global_batch);
  const std::int64_t length = dataset_->sequence_length();
  torch::Tensor tokens = torch::empty({end - begin, length + 1}, torch::kInt64);
  for (std::int64_t i = begin; i < end; ++i)
    dataset_->read(sampler_.sample(step * options_.global_batch + i),
                   tokens.data_ptr<std::int64_t>() + (i - begin) * (length + 1));
  Batch batch;
  batch.tensors = {{"input_ids", tokens.narrow(1, 0, length).contiguous()},
                   {"labels", tokens.narrow(1, 1, length).contiguous()}};
  batch.samples = end - begin;
  batch.first_sample = begin;
  batch.global_samples = options_.global_batch;
  batch.tokens_per_sample = length;
  return batch;
}

}  // namespace gantry
