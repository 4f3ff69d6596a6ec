// A GPT-2 for tests of stop requests, controlled by environment variables:
// - GANTRY_TEST_STOP="RANK FORWARD FILE": rank RANK sends SIGTERM to its process in its FORWARD-th forward.
//   Each forward that begins after its process has received the stop request appends a line to FILE.
// - GANTRY_TEST_HEAR="RANK FORWARD": rank RANK waits in this forward for the stop request.
// - GANTRY_TEST_HOLD="RANK FORWARD": rank RANK waits in this forward for 30 s and then throws.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "gantry/booster/gantry.h"
#include "gantry/booster/plugin_library.h"
#include "gantry/core/host/stop_request.h"
#include "gantry/models/model_family.h"
#include "gantry/policies/decoder.h"

namespace {

struct Moment {
  int rank = -1;
  long forward = 0;
  std::string file;
};

Moment moment_of(const char* variable) {
  Moment moment;
  if (const char* text = std::getenv(variable))
    std::istringstream(text) >> moment.rank >> moment.forward >> moment.file;
  return moment;
}

void wait_until(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("waited for 30 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void begin_forward() {
  static const Moment stop = moment_of("GANTRY_TEST_STOP"), hear = moment_of("GANTRY_TEST_HEAR"),
                      hold = moment_of("GANTRY_TEST_HOLD");
  thread_local long forwards = 0;  // a rank is one thread
  const int rank = gantry::current_world()->rank();
  ++forwards;
  if (!stop.file.empty() && gantry::stop_requested()) std::ofstream(stop.file, std::ios::app) << rank << std::endl;
  if (rank == stop.rank && forwards == stop.forward) std::raise(SIGTERM);
  if (rank == hear.rank && forwards == hear.forward) wait_until(gantry::stop_requested);
  if (rank == hold.rank && forwards == hold.forward) wait_until([] { return false; });
}

class StoppingPolicy final : public gantry::PolicyFor<gantry::models::DecoderImpl> {
 public:
  using Model = gantry::models::DecoderImpl;
  std::string name() const override { return "StoppingPolicy"; }
  gantry::ModelSplit split(const Model& model) const override { return gpt2_.split(model); }
  gantry::SharedParameters shared_parameters(const Model& model) const override {
    return gpt2_.shared_parameters(model);
  }
  gantry::TensorDict forward(Model& model, const gantry::StageContext& stage, gantry::TensorDict input) const override {
    begin_forward();
    return gpt2_.forward(model, stage, std::move(input));
  }

 private:
  gantry::DecoderPolicy gpt2_;
};

void add_policies() {
  gantry::policies().add<StoppingPolicy>("stopping_gpt2");
  gantry::models::ModelFamily family = gantry::models::families().at("gpt2");
  family.model_type = "stopping_gpt2";
  gantry::models::families().add("stopping_gpt2", family);
}

}  // namespace

GANTRY_PLUGIN_LIBRARY(add_policies)
