// Streams of token samples for tests.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gantry/data/dataset.h"
#include "gantry/data/sample_stream.h"
#include "gantry/tensors/libtorch.h"

namespace gantry::testing {

inline constexpr std::int64_t kStreamTokens = 6;

// Sample i of stream s has kStreamTokens tokens, the first one 100 s + i. The last label does not count.
class CountedStream final : public SampleStream {
 public:
  CountedStream(int stream, std::int64_t length, std::int64_t fails_at = -1)
      : stream_(stream), length_(length), fails_at_(fails_at) {}

  std::optional<TensorDict> next() override {
    if (next_ == fails_at_) throw std::runtime_error("the line is cut");
    if (next_ == length_) return std::nullopt;
    const std::int64_t first = 100 * stream_ + next_++;
    const torch::Tensor ids = (first + torch::arange(kStreamTokens) * (first % 7)) % 400;
    torch::Tensor labels = ids.roll(-1);
    labels[-1] = kNotCounted;
    return TensorDict{{"input_ids", ids}, {"labels", labels}};
  }
  std::string state() const override { return std::string("\0\xff", 2) + std::to_string(next_); }  // any bytes
  void load_state(const std::string& state) override { next_ = std::stoll(state.substr(2)); }

 private:
  int stream_;
  std::int64_t length_, fails_at_, next_ = 0;
};

// Makes streams of these lengths.
inline std::function<std::unique_ptr<SampleStream>(int stream)> counted_streams(std::vector<std::int64_t> lengths) {
  return [lengths = std::move(lengths)](int stream) {
    return std::make_unique<CountedStream>(stream, lengths.at(static_cast<std::size_t>(stream)));
  };
}

}  // namespace gantry::testing
