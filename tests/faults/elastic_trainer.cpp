// `gantry train` whose ranks fail on request: elastic_trainer CONFIG KEY=VALUE...
//
// GANTRY_FAULTS="KIND@MOMENT:RANK:STEP:GENERATION ..." lists what fails, and where. RANK is that of the launch, STEP
// the step of the moment, and GENERATION the number of times that the ranks of the job have changed. KIND: kill, stop,
// error, term (SIGTERM), cut (its connections with other ranks), or wait: until a replica waits to join. MOMENT: one of
// the Trainer's callbacks, without "on_"; or body and after: before and after the run, with step 0.
#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "gantry/booster/gantry.h"
#include "gantry/comm/control/rendezvous.h"
#include "gantry/launch/generation.h"
#include "gantry/tensors/libtorch.h"
#include "gantry/trainer/train.h"

namespace {

struct Fault {
  std::string kind, moment;
  int rank = -1;
  long step = 0;
  int generation = 0;
};

std::vector<Fault> wanted_faults() {
  std::vector<Fault> faults;
  const char* text = std::getenv("GANTRY_FAULTS");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    Fault fault;
    char colon = 0;
    std::istringstream stream(word);
    std::getline(stream, fault.kind, '@');
    std::getline(stream, fault.moment, ':');
    stream >> fault.rank >> colon >> fault.step >> colon >> fault.generation;
    faults.push_back(fault);
  }
  return faults;
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

void moment(const std::string& name, std::int64_t step) {
  static const std::vector<Fault> faults = wanted_faults();
  const char* rank = std::getenv("GANTRY_RANK");
  const gantry::Generation* generation = gantry::current_generation();
  for (const Fault& fault : faults) {
    if (!rank || !generation || fault.moment != name || fault.rank != std::atoi(rank) || fault.step != step ||
        fault.generation != generation->number())
      continue;
    if (fault.kind == "kill") ::raise(SIGKILL);
    if (fault.kind == "stop") ::raise(SIGSTOP);
    if (fault.kind == "term") ::raise(SIGTERM);
    if (fault.kind == "cut") cut_connections();
    if (fault.kind == "wait")
      while (!generation->replica_waits() && !generation->has_ended())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (fault.kind == "error") throw std::runtime_error("a fault of the test's");
  }
}

gantry::TrainerCallbacks moments() {
  return {.on_start = [](std::int64_t done) { moment("start", done); },
          .on_batch = [](std::int64_t step, const gantry::Batch&) { moment("batch", step); },
          .before_backward = [](const gantry::MicrobatchBackward& one) { moment("backward", one.step); },
          .before_step = [](std::int64_t step) { moment("before_step", step); },
          .on_step = [](const gantry::StepMetrics& metrics) { moment("step", metrics.step); },
          .on_evaluation = [](const gantry::EvaluationMetrics& one) { moment("evaluation", one.step); },
          .on_save = [](std::int64_t step) { moment("save", step); },
          .on_end = [](const gantry::RunEnd& end) { moment("end", end.last_step); }};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return gantry::train(gantry::Config::load(argv[1], {argv + 2, argv + argc}), [](gantry::Trainer& trainer) {
    moment("body", 0);
    trainer.add(moments());
    trainer.run();
    moment("after", 0);
    const gantry::ProcessGroupMesh& mesh = trainer.booster().mesh();
    torch::Tensor sum = torch::ones({1});
    mesh.world_group().all_reduce(sum).wait();  // the program computes more after the run
  });
}
