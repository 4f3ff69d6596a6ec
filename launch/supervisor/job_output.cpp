#include "gantry/launch/supervisor/job_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/core/base/steady_seconds.h"
#include "gantry/core/error.h"

namespace gantry::launcher {
namespace {

constexpr std::size_t kMpirunLines = 30;

const char* kind_name(RankEnd::Kind kind) {
  switch (kind) {
    case RankEnd::Kind::kExit:
      return "exit";
    case RankEnd::Kind::kSignal:
      return "signal";
    case RankEnd::Kind::kStopped:
      return "stopped";
    case RankEnd::Kind::kSilent:
      return "silent";
    case RankEnd::Kind::kLost:
      return "lost";
    case RankEnd::Kind::kLeft:
      return "gone";
    case RankEnd::Kind::kNever:
      break;
  }
  return "never began";
}

}  // namespace

JobOutput::JobOutput(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(folder_, failure);
  launch_log_.open(folder_ + "/launch.log", std::ios::app);
  if (failure || !launch_log_)
    throw ResourceError({folder_, "the logs cannot be written", "a writable directory", "choose another --log-dir"});
}

std::string JobOutput::start_folder() const { return fmt::format("{}/start-{}", folder_, start_); }

void JobOutput::begin_start(int number, int ranks) {
  start_ = number;
  lines_.clear();
  last_mpirun_lines_.clear();
  aborted_by_ = -1;
  if (folder_.empty()) return;
  std::error_code failure;
  std::filesystem::remove_all(start_folder(), failure);
  std::filesystem::create_directories(start_folder(), failure);
  logs_.clear();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.log", start_folder(), rank);
    if (logs_.emplace_back(path)) continue;
    const int error = errno;
    throw ResourceError({path, fmt::format("the log cannot be written: {}", std::strerror(error)),
                         "a log for each rank",
                         error == EMFILE ? "raise the limit of open files (ulimit -n)" : "choose another --log-dir"});
  }
  mpirun_log_ = std::ofstream(start_folder() + "/mpirun.log");
  processes_ = std::ofstream(start_folder() + "/processes");
}

void JobOutput::rank_began(int rank, const std::string& host, const std::string& process) {
  if (processes_.is_open()) processes_ << fmt::format("rank {} on {}: process {}", rank, host, process) << std::endl;
}

void JobOutput::show(int rank, Stream stream, const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) {
    text += fmt::format("[{}] {}\n", rank, line);
    if (!logs_.empty()) logs_[static_cast<std::size_t>(rank)] << line << "\n";
  }
  if (text.empty()) return;
  if (!logs_.empty()) logs_[static_cast<std::size_t>(rank)].flush();
  writer_.write(stream, std::move(text));
}

void JobOutput::rank_bytes(int rank, Stream stream, const std::string& bytes) {
  show(rank, stream, lines_[{rank, stream}].add(bytes));
}

void JobOutput::rank_ended(int rank) {
  for (const Stream stream : {Stream::kOut, Stream::kErr}) show(rank, stream, lines_[{rank, stream}].finish());
}

void JobOutput::take_mpirun_lines(const std::vector<std::string>& lines) {
  for (const auto& line : lines) {
    std::sscanf(line.c_str(), "MPI_ABORT was invoked on rank %d", &aborted_by_);
    if (mpirun_log_.is_open()) mpirun_log_ << line << std::endl;
    last_mpirun_lines_.push_back(line);
    if (last_mpirun_lines_.size() > kMpirunLines) last_mpirun_lines_.pop_front();
  }
}

void JobOutput::mpirun_bytes(const std::string& bytes) { take_mpirun_lines(mpirun_lines_.add(bytes)); }

void JobOutput::note(const std::string& line) {
  writer_.write(Stream::kErr, fmt::format("launch: {}\n", line));
  if (launch_log_.is_open()) launch_log_ << line << std::endl;
}

void JobOutput::show_mpirun() {
  take_mpirun_lines(mpirun_lines_.finish());
  for (const auto& line : last_mpirun_lines_)
    if (line.find_first_not_of("- ") != std::string::npos)
      writer_.write(Stream::kErr, fmt::format("[mpirun] {}\n", line));
}

void JobOutput::finish(const std::function<bool()>& give_up) {
  const double end = steady_seconds() + patience_;
  writer_.finish([&] { return give_up() || steady_seconds() >= end; });
}

void JobOutput::write_ends(const JobEnd& end) {
  if (folder_.empty()) return;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const auto& rank : end.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"host", rank.host},
                     {"end", kind_name(rank.kind)},
                     {"number", rank.number},
                     {"notified", rank.notified}});
  const nlohmann::ordered_json all = {{"mpirun", end.mpirun_code}, {"ranks", ranks}};
  std::ofstream(start_folder() + "/ranks.json") << all.dump(2) << "\n";
}

}  // namespace gantry::launcher
