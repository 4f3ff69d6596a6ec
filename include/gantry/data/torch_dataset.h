// Adapts the data sets and loaders of torch::data.
#pragma once

#include <charconv>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <torch/data/example.h>

#include "gantry/core/error.h"
#include "gantry/data/function_dataset.h"
#include "gantry/data/sample_stream.h"
#include "gantry/tensors/tensor_dict.h"

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

// The samples of a loader of torch::data, in its order. Its state is the number of samples that were read, so that a
// resumed run reads and drops them. Used by one thread at a time. load_state() throws InputError for another text, and
// if the loader has fewer samples.
template <class Loader>
class TorchLoaderStream final : public SampleStream {
 public:
  TorchLoaderStream(Loader loader, std::string data, std::string target)
      : loader_(std::move(loader)), data_(std::move(data)), target_(std::move(target)) {}

  std::optional<TensorDict> next() override {
    if (!batch_) batch_.emplace(loader_->begin());
    while (samples_.empty()) {
      if (*batch_ == loader_->end()) return std::nullopt;
      add(**batch_);
      ++*batch_;
    }
    TensorDict sample = std::move(samples_.front());
    samples_.pop_front();
    ++read_;
    return sample;
  }
  std::string state() const override { return std::to_string(read_); }
  void load_state(const std::string& state) override {
    std::int64_t read = 0;
    const auto [end, fault] = std::from_chars(state.data(), state.data() + state.size(), read);
    if (fault != std::errc() || end != state.data() + state.size())
      throw InputError({"stream", "the state '" + state + "' is not a number of samples", "the state of such a stream",
                        "resume with the loader that the run was saved with"});
    while (read_ < read)
      if (!next())
        throw InputError({"stream", "the loader has " + std::to_string(read_) + " samples, but " + state + " were read",
                          "the data of the saved run", "resume with the same data"});
  }

 private:
  void add(const std::vector<torch::data::Example<>>& examples) {
    for (const auto& example : examples) samples_.push_back({{data_, example.data}, {target_, example.target}});
  }
  void add(const torch::data::Example<>& stacked) {  // by torch::data::transforms::Stack
    for (std::int64_t i = 0; i < stacked.data.size(0); ++i)
      samples_.push_back({{data_, stacked.data[i]}, {target_, stacked.target[i]}});
  }

  Loader loader_;
  std::string data_, target_;
  std::optional<decltype(std::declval<Loader&>()->begin())> batch_;
  std::deque<TensorDict> samples_;
  std::int64_t read_ = 0;
};

// `make`: returns the loader of a stream, counted from 0, as torch::data::make_data_loader does. Its order must be the
// same on every rank: use torch::data::samplers::SequentialSampler, or a data set that shuffles by a seed. Its examples
// have a tensor as data and one as target; the sizes of its batches have no effect. `data` and `target` are the names
// of the batch's entries. `streams`: see StreamSource.
template <class Make>
StreamSource from_torch_loader(Make make, int streams = 1, const std::string& data = "x",
                               const std::string& target = "labels") {
  return {.open = [=](int stream) -> std::unique_ptr<SampleStream> {
            return std::make_unique<TorchLoaderStream<decltype(make(stream))>>(make(stream), data, target);
          },
          .streams = streams};
}

}  // namespace gantry
