#include "gantry/data/data_loader.h"

namespace gantry {
namespace {

LoaderOptions loader_options(const DataLoaderOptions& options, int replicas, int replica) {
  return {.global_batch = options.global_batch,
          .replicas = replicas,
          .replica = replica,
          .shuffle = options.shuffle,
          .seed = options.seed};
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      loader_(dataset_, loader_options(options, 1, 0)),
      steps_(options.steps > 0 ? options.steps : std::max<std::int64_t>(1, dataset_->size() / options.global_batch)) {}

void DataLoader::distribute(int replicas, int replica) {
  loader_ = Loader(dataset_, loader_options(options_, replicas, replica));
}

}  // namespace gantry
