// Adapts the data sets of torch::data.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <torch/data/example.h>

#include "gantry/data/function_dataset.h"

namespace gantry {

// `source`: a map-style data set of torch::data, such as torch::data::datasets::MNIST(path) or its map(transform). Its
// examples have a tensor as data and one as target; Stack is not needed, because the loader makes the batches. `data`
// and `target` are the names of the batch's entries. Samples are read one at a time. Throws UsageError if the data set
// does not know its size, and like FunctionDataset.
template <class Source>
std::shared_ptr<Dataset> from_torch(Source source, const std::string& data = "x",
                                    const std::string& target = "labels") {
  const auto size = source.size();
  if (!size)
    throw UsageError({"data set", "the data set of torch::data does not know its size", "one of fixed size", ""});
  struct Shared {
    std::mutex mutex;  // get_batch() is not const
    Source source;
    explicit Shared(Source made) : source(std::move(made)) {}
  };
  const auto shared = std::make_shared<Shared>(std::move(source));
  return std::make_shared<FunctionDataset>(static_cast<std::int64_t>(*size),
                                           [shared, data, target](std::int64_t index) -> TensorDict {
                                             const std::lock_guard lock(shared->mutex);
                                             const std::size_t place = static_cast<std::size_t>(index);
                                             const auto examples = shared->source.get_batch(place);
                                             return {{data, examples.at(0).data}, {target, examples.at(0).target}};
                                           });
}

}  // namespace gantry
