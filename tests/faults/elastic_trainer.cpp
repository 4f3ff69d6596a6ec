// `gantry train` whose ranks fail on request: elastic_trainer CONFIG KEY=VALUE...
//
// GANTRY_FAULTS="KIND@MOMENT[+MESSAGES]:RANK:STEP:GENERATION ..." lists what fails, and where. RANK is that of the
// launch, STEP the step of the moment, and GENERATION the number of times that the ranks of the job have changed. `*`
// stands for any step, and for any generation.
//
// KIND:
//   kill, stop   SIGKILL, SIGSTOP
//   error, term  an exception, SIGTERM
//   cut          the rank loses its connections with other ranks
//   wait         the rank waits until a replica waits to join
//   grow         the same, but only if a replica is missing
//   files        the rank prints the number of its open files
// MOMENT: one of the Trainer's callbacks, without "on_", or:
//   body, after  before and after the run, with step 0
//   left         the body ends because the ranks of the job change
//   joins        the start of a process that joins the job
// MESSAGES: the rank is killed when it is about to send that message after the moment, unless the last step is
// completed before.
//
// If GANTRY_FAULT_MARKS is a directory, each fault happens at most once, also in a process that was started again.
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gantry/booster/gantry.h"
#include "gantry/comm/control/rendezvous.h"
#include "gantry/core/host/process_end.h"
#include "gantry/launch/generation.h"
#include "gantry/launch/job_start.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/train.h"

namespace {

constexpr int kAny = -1;

struct Fault {
  std::string kind, moment;
  int messages = 0;
  int rank = -1;
  int step = 0;
  int generation = 0;
  std::string mark;  // the name of its file
};

int number_of(const std::string& word) { return word == "*" ? kAny : std::atoi(word.c_str()); }

std::vector<Fault> wanted_faults() {
  std::vector<Fault> faults;
  const char* text = std::getenv("GANTRY_FAULTS");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    Fault fault;
    std::string moment, rank, step, generation;
    std::istringstream stream(word);
    std::getline(stream, fault.kind, '@');
    std::getline(stream, moment, ':');
    std::getline(stream, rank, ':');
    std::getline(stream, step, ':');
    std::getline(stream, generation);
    const auto plus = moment.find('+');
    fault.moment = moment.substr(0, plus);
    if (plus != std::string::npos) fault.messages = number_of(moment.substr(plus + 1));
    fault.rank = number_of(rank);
    fault.step = number_of(step);
    fault.generation = number_of(generation);
    fault.mark = std::to_string(faults.size());
    faults.push_back(fault);
  }
  return faults;
}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = wanted_faults();
  return all;
}

// False if the fault has happened before.
bool claim(const Fault& fault) {
  const char* marks = std::getenv("GANTRY_FAULT_MARKS");
  if (!marks) return true;
  const int file = ::open((std::string(marks) + "/" + fault.mark).c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

std::atomic<const Fault*> pending{nullptr};  // the fault that waits for a message
std::atomic<int> messages_left{0};

void count_message() {
  const Fault* fault = pending;
  if (fault && --messages_left == 0 && claim(*fault)) ::raise(SIGKILL);
}

// The connection with the launch stays: its port is in GANTRY_LAUNCH.
void cut_connections() {
  const auto meeting = gantry::decode_meeting(std::getenv(gantry::Rendezvous::kVariable));
  for (int file = 3; file < 1024; ++file) {
    sockaddr_in peer{};
    socklen_t size = sizeof(peer);
    const bool is_connected = ::getpeername(file, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (is_connected && peer.sin_family == AF_INET && ntohs(peer.sin_port) != meeting->port)
      ::shutdown(file, SHUT_RDWR);
  }
}

int env_number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

int ranks_of_generation = 0;

void wait_for_replica(const gantry::Generation& generation) {
  while (!generation.replica_waits() && !generation.has_ended())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

// Connections of the control plane may be opening or closing: the number is printed once it stays the same.
void print_open_files() {
  constexpr int kEqual = 20, kMost = 400;
  int files = open_files();
  for (int equal = 0, all = 0; equal < kEqual && all < kMost; ++all) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    const int now = open_files();
    equal = now == files ? equal + 1 : 0;
    files = now;
  }
  std::printf("open files: %d\n", files);
  std::fflush(stdout);
}

void happen(const Fault& fault, const gantry::Generation* generation) {
  if (fault.messages > 0) {
    messages_left = fault.messages;
    pending = &fault;
    return;
  }
  if (fault.kind == "wait") return wait_for_replica(*generation);
  if (fault.kind == "grow") {
    if (ranks_of_generation < env_number(gantry::JobStart::kRanksVariable)) wait_for_replica(*generation);
    return;
  }
  if (fault.kind == "files") return print_open_files();
  if (!claim(fault)) return;
  if (fault.kind == "kill") ::raise(SIGKILL);
  if (fault.kind == "stop") ::raise(SIGSTOP);
  if (fault.kind == "term") ::raise(SIGTERM);
  if (fault.kind == "cut") cut_connections();
  if (fault.kind == "error") throw std::runtime_error("a fault of the test's");
}

void moment(const std::string& name, std::int64_t step) {
  const gantry::Generation* generation = gantry::current_generation();
  const int number = generation ? generation->number() : kAny;
  for (const Fault& fault : faults())
    if (fault.moment == name && fault.rank == env_number(gantry::JobStart::kRankVariable) &&
        (fault.step == kAny || fault.step == step) && (fault.generation == kAny || fault.generation == number))
      happen(fault, generation);
}

gantry::TrainerCallbacks moments(std::int64_t last_step) {
  return {.on_start = [](std::int64_t done) { moment("start", done); },
          .on_batch = [](std::int64_t step, const gantry::Batch&) { moment("batch", step); },
          .before_backward = [](const gantry::MicrobatchBackward& one) { moment("backward", one.step); },
          .before_step = [](std::int64_t step) { moment("before_step", step); },
          .on_step =
              [last_step](const gantry::StepMetrics& metrics) {
                if (metrics.step >= last_step) pending = nullptr;
                moment("step", metrics.step);
              },
          .on_evaluation = [](const gantry::EvaluationMetrics& one) { moment("evaluation", one.step); },
          .on_save = [](std::int64_t step) { moment("save", step); },
          .on_end = [](const gantry::RunEnd& end) { moment("end", end.last_step); }};
}

void run(gantry::Trainer& trainer) {
  ranks_of_generation = trainer.world().size();
  moment("body", 0);
  trainer.add(moments(trainer.config().train.steps));
  try {
    trainer.run();
  } catch (const gantry::PeerError&) {
    moment("left", 0);
    throw;
  }
  moment("after", 0);
  const gantry::ProcessGroupMesh& mesh = trainer.booster().mesh();
  torch::Tensor sum = torch::ones({1});
  mesh.world_group().all_reduce(sum).wait();  // the program computes more after the run
}

}  // namespace

// In place of the C library's, for all of this program: the control plane and the connections between ranks use them.
extern "C" {
__attribute__((visibility("default"))) ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  count_message();
  return ::syscall(SYS_sendmsg, socket, message, flags);
}
__attribute__((visibility("default"))) ssize_t send(int socket, const void* data, size_t size, int flags) {
  count_message();
  return ::syscall(SYS_sendto, socket, data, size, flags, nullptr, 0);
}
}

int main(int argc, char** argv) {
  gantry::skip_library_destructors();
  if (argc < 2) return 2;
  if (env_number(gantry::JobStart::kJoinsVariable) > 0) moment("joins", 0);
  return gantry::train(gantry::Config::load(argv[1], {argv + 2, argv + argc}), run);
}
