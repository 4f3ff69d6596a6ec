// A training run on streams of samples without a known length: own_stream CONFIG.yaml [KEY=VALUE...]
#include <fstream>

#include "gantry/booster/gantry.h"

namespace {

constexpr int kStreams = 4;  // for 1, 2 or 4 replicas
constexpr std::size_t kLongest = 64;

// The bytes of the lines of a text file: stream s has the lines s, s + kStreams, s + 2 kStreams, ...
class Lines final : public gantry::SampleStream {
 public:
  Lines(const std::string& path, int stream) : file_(path), stream_(stream) {}

  std::optional<gantry::TensorDict> next() override {
    for (std::string line; std::getline(file_, line);)
      if (read_++ % kStreams == stream_ && line.size() > 1) return sample_of(line.substr(0, kLongest));
    return std::nullopt;
  }
  std::string state() const override { return std::to_string(read_); }
  void load_state(const std::string& state) override {
    std::string line;
    for (const std::int64_t lines = std::stoll(state); read_ < lines; ++read_) std::getline(file_, line);
  }

 private:
  static gantry::TensorDict sample_of(const std::string& line) {
    torch::Tensor ids = torch::empty({static_cast<std::int64_t>(line.size())}, torch::kInt64);
    for (std::size_t i = 0; i < line.size(); ++i)
      ids[static_cast<std::int64_t>(i)] = static_cast<std::uint8_t>(line[i]);
    return {{"input_ids", ids}, {"labels", ids}, {"attention_mask", torch::ones_like(ids)}};
  }

  std::ifstream file_;
  int stream_;
  std::int64_t read_ = 0;  // lines, of all streams
};

}  // namespace

int main(int argc, char** argv) {
  return gantry::run_main(argc, argv, [](const gantry::Config& config) {
    return gantry::train(config, [](gantry::Trainer& trainer) {
      const gantry::StreamSource source{.open = [](int stream) { return std::make_unique<Lines>("README.md", stream); },
                                        .streams = kStreams};
      const auto pad =
          gantry::pad_to_longest({{"input_ids", 0}, {"labels", gantry::kNotCounted}, {"attention_mask", 0}});
      trainer.use({.criterion = gantry::causal_cross_entropy(),
                   .loader = std::make_shared<gantry::DataLoader>(
                       source, gantry::DataLoaderOptions{.global_batch = 8, .prefetch = 2, .collate = pad})});
      trainer.run();
    });
  });
}
