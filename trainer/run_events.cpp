#include "gantry/trainer/run_events.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <utility>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/host/this_host.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/version.h"
#include "gantry/launch/backends.h"

namespace gantry {
namespace {

std::string events_path(const std::string& output, int rank) {
  const std::string folder = output + "/events";
  make_folders(folder);
  return fmt::format("{}/rank-{:05}.jsonl", folder, rank);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

const char* name_of(RunEnd::How how) {
  switch (how) {
    case RunEnd::How::kDone:
      return "done";
    case RunEnd::How::kEnded:
      return "ended";
    case RunEnd::How::kStopped:
      return "stopped";
  }
  return "";
}

}  // namespace

RunEvents::RunEvents(const std::string& output, const World& world)
    : rank_(world.rank()),
      ranks_(world.size()),
      path_(events_path(output, rank_)),
      file_(std::fopen(path_.c_str(), "a")) {
  if (!file_) throw ResourceError({path_, std::strerror(errno), "a writable file", "choose another `output`"});
  if (world.is_main() || ranks_are_processes(world.config().comm))
    listener_ = std::make_unique<WarningListener>([this](const std::string& line) {
      write_quietly("warning", {{"text", valid_utf8(line)}});
    });
}

RunEvents::~RunEvents() {
  listener_.reset();
  std::fclose(file_);
}

void RunEvents::write(const char* event, nlohmann::ordered_json facts) {
  const std::lock_guard lock(mutex_);
  if (facts.contains("step"))
    step_ = facts["step"].get<std::int64_t>();
  else
    facts["step"] = step_;
  nlohmann::ordered_json line = {{"time", seconds_since_1970()}, {"event", event}, {"rank", rank_}};
  line.update(facts);
  const std::string text = line.dump() + "\n";
  if (std::fputs(text.c_str(), file_) < 0 || std::fflush(file_) != 0)
    throw ResourceError({path_, std::strerror(errno), "disk space for another line", "free some space"});
}

// The run continues without the line, or has a failure that matters more.
void RunEvents::write_quietly(const char* event, nlohmann::ordered_json facts) noexcept {
  try {
    write(event, std::move(facts));
  } catch (const std::exception&) {
  }
}

void RunEvents::start(std::int64_t done, std::int64_t steps) {
  write("start", {{"step", done},
                  {"steps", steps},
                  {"ranks", ranks_},
                  {"host", host_name()},
                  {"process", ::getpid()},
                  {"version", GANTRY_VERSION}});
  if (done > 0) write("resume", {{"step", done}});
}

void RunEvents::step(const StepMetrics& metrics) {
  write("step", {{"step", metrics.step},
                 {"loss", metrics.loss},
                 {"grad_norm", metrics.grad_norm},
                 {"lr", metrics.lr},
                 {"tokens", metrics.tokens},
                 {"seconds", metrics.step_seconds}});
}

void RunEvents::evaluation(const EvaluationMetrics& metrics) {
  write("evaluation", {{"step", metrics.step}, {"loss", metrics.loss}, {"tokens", metrics.tokens}});
}

void RunEvents::save(std::int64_t step) { write("save", {{"step", step}}); }

void RunEvents::end(const RunEnd& end) {
  write("end", {{"step", end.last_step}, {"how", name_of(end.how)}, {"checkpoint", valid_utf8(end.checkpoint)}});
}

void RunEvents::failure(const std::string& error, int exit_code) noexcept {
  write_quietly("failure", {{"error", valid_utf8(error)}, {"exit_code", exit_code}});
}

}  // namespace gantry
