// Compares saving and loading a checkpoint with plain sequential writes and reads of the same bytes on the
// same disk.
// usage: checkpoint_bench FOLDER [MEGABYTES] [ROUNDS]; prints one JSON object per line.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "gantry/checkpoint/writer.h"
#include "gantry/core/error.h"
#include "gantry/launch/launch.h"
#include "gantry/tensors/libtorch.h"

namespace {

using namespace gantry;
namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{16} << 20;
constexpr std::int64_t kRows = 1024, kColumns = 1024;  // shape of each tensor, 4 MB in float32

// The state of a model under AdamW: weights and two moments.
class BenchState final : public StateSource {
 public:
  explicit BenchState(std::int64_t megabytes) {
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, megabytes / 12); ++i)
      for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
        const Placement placement{fmt::format("layers.{}.weight", i), {kRows, kColumns}, {}, {0}, {}};
        entries_.push_back({kind, {placement, torch::rand({kRows, kColumns})}, ""});
      }
  }
  std::vector<StateEntry> state_entries() override { return entries_; }
  int first_holder(const Placement&) const override { return 0; }
  nlohmann::json state_numbers() const override { return {{"optimizer_steps", 1}}; }
  void load_state_numbers(const nlohmann::json&) override {}
  std::size_t bytes() const { return entries_.size() * kRows * kColumns * sizeof(float); }

 private:
  std::vector<StateEntry> entries_;
};

void report(const char* what, std::size_t bytes, const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{{\"what\": \"{}\", \"bytes\": {}, \"seconds\": {}}}\n", what, bytes, seconds);
  std::fflush(stdout);
}

void require(bool done, const std::string& path) {
  if (!done) throw ResourceError({path, "can't be written or read", "", "choose another folder"});
}

// Evicts the file from the page cache, so that the next read comes from the disk.
void forget(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  require(file >= 0 && ::fsync(file) == 0, path);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

void plain_write(const std::string& path, const torch::Tensor& source) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  require(file >= 0, path);
  const char* at = static_cast<const char*>(source.data_ptr());
  for (std::size_t left = source.nbytes(); left > 0;) {
    const ssize_t written = ::write(file, at, std::min(left, kPiece));
    require(written > 0, path);
    at += written;
    left -= static_cast<std::size_t>(written);
  }
  require(::fsync(file) == 0, path);
  ::close(file);
}

void plain_read(const std::string& path, const torch::Tensor& target) {
  const int file = ::open(path.c_str(), O_RDONLY);
  require(file >= 0, path);
  char* at = static_cast<char*>(target.data_ptr());
  for (ssize_t got; (got = ::read(file, at, kPiece)) > 0;) at += got;
  ::close(file);
}

void run(const std::string& folder, std::int64_t megabytes, int rounds, const ProcessGroupMesh& mesh) {
  BenchState state(megabytes);
  const std::string plain = folder + "/plain", saved = folder + "/saved", background = folder + "/background";
  const torch::Tensor full = torch::ones({static_cast<std::int64_t>(state.bytes())}, torch::kUInt8);
  SaveRequest request{.directory = saved, .step = 1, .config_text = "", .model_config = {}, .policy = "bench"};
  CheckpointWriter synchronous(saved, mesh), asynchronous(background, mesh, {.async = true});
  for (int round = 0; round < rounds; ++round) {
    // Every write creates new files, like a real save. The files of the previous round are removed first.
    request.step = round + 1;
    for (const auto& last : {synchronous.last(), asynchronous.last(), plain}) fs::remove_all(last);
    const std::vector<std::function<void()>> writes = {
        [&] { report("plain write", state.bytes(), [&] { plain_write(plain, full); }); },
        [&] { report("save", state.bytes(), [&] { synchronous.save(request, state); }); },
        [&] {
          report("asynchronous save, blocked", state.bytes(), [&] { asynchronous.save(request, state); });
          report("asynchronous save, rest", state.bytes(), [&] { asynchronous.finish(); });
        }};
    // The order rotates, so that each write is first, second
    // and last in turn: earlier writes slow the disk down.
    for (std::size_t i = 0; i < writes.size(); ++i) writes[(i + static_cast<std::size_t>(round)) % writes.size()]();
    forget(plain);
    report("plain read", state.bytes(), [&] { plain_read(plain, full); });
    for (const auto& entry : fs::directory_iterator(synchronous.last())) forget(entry.path().string());
    report("load", state.bytes(), [&] { load_checkpoint(synchronous.last(), state, mesh); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: checkpoint_bench FOLDER [MEGABYTES] [ROUNDS]\n");
    return UsageError::kExitCode;
  }
  const std::string folder = argv[1];
  const std::int64_t megabytes = argc > 2 ? std::atoll(argv[2]) : 480;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  fs::create_directories(folder);
  return launch(Config{}, [&](World& world) {
    const ProcessGroupMesh mesh(world);
    run(folder, megabytes, rounds, mesh);
  });
}
