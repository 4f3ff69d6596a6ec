// `gantry train` on devices that do not exist, for bench/elastic.py: a microbatch occupies the device of its
// rank for a fixed time, in which the rank sleeps. The small computation of the model is hidden in this time,
// like the work of a host.
//
// elastic_bench CONFIG MILLISECONDS MOMENTS [KEY=VALUE...]: appends a line to MOMENTS/RANK.jsonl at each moment of the
// rank, with the time of CLOCK_MONOTONIC and the processor time of the process, in seconds.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>

#include "gantry/booster/gantry.h"
#include "gantry/launch/generation.h"
#include "gantry/trainer/train.h"

namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Moments {
 public:
  explicit Moments(const std::string& directory) {
    const char* rank = std::getenv("GANTRY_RANK");
    file_ = std::fopen(fmt::format("{}/{}.jsonl", directory, rank ? rank : "0").c_str(), "a");
  }
  ~Moments() {
    if (file_) std::fclose(file_);
  }
  Moments(const Moments&) = delete;
  Moments& operator=(const Moments&) = delete;

  // One write, so that a rank that is killed leaves full lines.
  void add(const std::string& name, std::int64_t step = 0) const {
    const gantry::Generation* generation = gantry::current_generation();
    fmt::print(file_,
               "{{\"at\":{:.6f},\"cpu\":{:.6f},\"moment\":\"{}\",\"step\":{},\"generation\":{},\"process\":{}}}\n",
               seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID), name, step,
               generation ? generation->number() : 0, ::getpid());
    std::fflush(file_);
  }
  bool is_open() const { return file_ != nullptr; }

 private:
  std::FILE* file_ = nullptr;
};

class SleepingDevice {
 public:
  using Clock = std::chrono::steady_clock;
  explicit SleepingDevice(double milliseconds) : microbatch_(milliseconds) {}

  void begin_step() { busy_until_ = Clock::now(); }
  void compute_microbatch() {
    busy_until_ += std::chrono::duration_cast<Clock::duration>(microbatch_);
    std::this_thread::sleep_until(busy_until_);
  }

 private:
  const std::chrono::duration<double, std::milli> microbatch_;
  Clock::time_point busy_until_;
};

void run(gantry::Trainer& trainer, const Moments& moments, double milliseconds) {
  SleepingDevice device(milliseconds);
  moments.add("body");
  trainer.add({.on_start = [&](std::int64_t done) { moments.add("start", done); },
               .on_batch = [&](std::int64_t, const gantry::Batch&) { device.begin_step(); },
               .before_backward = [&](const gantry::MicrobatchBackward&) { device.compute_microbatch(); },
               .on_step = [&](const gantry::StepMetrics& metrics) { moments.add("step", metrics.step); }});
  try {
    trainer.run();
  } catch (const gantry::Error&) {
    moments.add("left");
    throw;
  }
  moments.add("end");
}

}  // namespace

int main(int argc, char** argv) {
  const double milliseconds = argc > 2 ? std::atof(argv[2]) : 0;
  if (argc < 4 || milliseconds <= 0) {
    std::fprintf(stderr, "usage: elastic_bench CONFIG MILLISECONDS MOMENTS [KEY=VALUE...]\n");
    return 2;
  }
  const Moments moments(argv[3]);
  if (!moments.is_open()) {
    std::perror(argv[3]);
    return 2;
  }
  moments.add("process");
  return gantry::train(gantry::Config::load(argv[1], {argv + 4, argv + argc}),
                       [&](gantry::Trainer& trainer) { run(trainer, moments, milliseconds); });
}
