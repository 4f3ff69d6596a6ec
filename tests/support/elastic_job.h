// A small elastic job whose ranks fail (tests/faults/elastic_trainer.cpp), and its comparison with runs without faults.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace gantry::testing {

constexpr int kElasticSteps = 6;

struct ElasticCase {
  std::string faults;  // GANTRY_FAULTS of elastic_trainer
  int ranks = 3;
  std::string sets;  // "--set KEY=VALUE ...": in addition, also for the run without faults
  std::string elastic = "rejoin: false";
  std::string hosts;             // the host of each rank, as if there were several
  bool each_fault_once = false;  // also in a process that was started again
};

class ElasticJob {
 public:
  explicit ElasticJob(const ElasticCase& one);

  std::string file(const std::string& name) const { return read_file(scratch_ / name); }
  const Outcome& outcome() const { return outcome_; }
  std::string all_output() const { return outcome_.err + outcome_.out; }

  // The number of replicas of each step, from the metrics. Expects each step once, in order.
  std::vector<int> replicas() const;
  // The number of faults that happened, of a case with each_fault_once.
  int happened() const;
  // The steps after which the run was evaluated.
  std::vector<int> evaluations() const;
  // Runs the same steps without faults, in threads: a run for each stretch of equal numbers of replicas. Expects the
  // same losses, and checkpoint files of the last step with the same bytes.
  void expect_bits_of_a_run_without_faults();

  std::vector<double> losses_of_steps(const std::string& folder) const;
  std::vector<double> losses_of_one_rank() const;
  Outcome run_without_launch() const;

 private:
  std::string losses(const std::string& folder) const;

  const int ranks_;
  std::string sets_;
  ScratchFolder scratch_;
  std::string config_;
  Outcome outcome_;
};

// `replicas`: of each step; empty if the place of the fault leaves it open whether its step is completed. Returns the
// number of faults that happened, of a case with each_fault_once.
int expect_exact(const ElasticCase& one, const std::vector<int>& replicas = {});

}  // namespace gantry::testing
