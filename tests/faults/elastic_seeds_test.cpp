// Elastic jobs with faults at places that a seed selects: no job hangs, and each result is bitwise identical to that of
// a run without faults and with the same numbers of replicas. 200 seeds with GANTRY_LONG=1; GANTRY_SEED=FIRST[:COUNT]
// runs some of them.
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "elastic_job.h"

namespace gantry::testing {
namespace {

struct ReplicaLayout {
  int replicas;
  int ranks;         // the size of a replica
  const char* sets;  // a replica has consecutive ranks
};

// Seed i has layout i modulo their number: the first ones, which the short form runs, have few processes.
constexpr ReplicaLayout kLayouts[] = {
    {3, 1, ""},
    {4, 1, ""},
    {3, 1, ""},
    {3, 2, "--set parallel.tensor=2 --set parallel.order=[dp,pp,tp] "},
    {4, 1, ""},
    {2, 2, "--set parallel.pipeline=2 --set parallel.order=[dp,pp,tp] "},
    {2, 2, "--set parallel.context=2 --set parallel.order=[dp,pp,cp,tp] "},
    {3, 4, "--set parallel.tensor=2 --set parallel.pipeline=2 --set parallel.order=[dp,pp,tp] "},
};

class FaultChoice {
 public:
  FaultChoice(unsigned seed, const ReplicaLayout& layout)
      : random_(seed), layout_(layout), survivor_(any(layout.replicas)), has_hosts_(any(3) > 0) {}

  int any(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool happens(int one_in) { return any(one_in) == 0; }
  int survivor() { return survivor_ * layout_.ranks + any(layout_.ranks); }
  // Messages between ranks of one host are in shared memory.
  bool has_hosts() const { return has_hosts_; }

  // Any rank of the other replicas, at any moment; with hosts, also at any message until the next moment. A step has
  // about 20 messages of a rank, and the beginning of a generation about 70.
  std::string kill() {
    static const char* const kMoments[] = {"batch",      "backward", "before_step", "step", "save", "save",
                                           "evaluation", "start",    "body",        "left", "joins"};
    const std::string moment = kMoments[any(static_cast<int>(std::size(kMoments)))];
    const bool has_step = moment != "start" && moment != "body" && moment != "left" && moment != "joins";
    const int replica = (survivor_ + 1 + any(layout_.replicas - 1)) % layout_.replicas;
    const int rank = replica * layout_.ranks + any(layout_.ranks);
    // A loss during the last step may find a first rank that has finished, which ends the job.
    const std::string step = has_step ? std::to_string(1 + any(kElasticSteps - 1)) : "*";
    const std::string generation = happens(3) ? std::to_string(any(3)) : "*";
    const std::string messages = !has_hosts_ || happens(4) ? "" : fmt::format("+{}", 1 + any(has_step ? 24 : 70));
    return fmt::format("kill@{}{}:{}:{}:{} ", moment, messages, rank, step, generation);
  }

 private:
  std::mt19937 random_;
  const ReplicaLayout& layout_;
  const int survivor_;
  const bool has_hosts_;
};

ElasticCase elastic_case_of(unsigned seed, const ReplicaLayout& layout) {
  FaultChoice choice(seed, layout);
  ElasticCase one{.ranks = layout.replicas * layout.ranks, .sets = layout.sets, .each_fault_once = true};
  for (int faults = 1 + choice.any(4); faults > 0; --faults) one.faults += choice.kill();
  one.elastic = choice.happens(3) ? "rejoin: false" : "rejoin: true";
  // Drawn one after the other: the order of arguments is that of the compiler.
  if (one.elastic == "rejoin: true" && !choice.happens(4)) {
    const int rank = choice.survivor();
    const std::string step = choice.happens(2) ? "*" : std::to_string(1 + choice.any(kElasticSteps - 1));
    one.faults += fmt::format("grow@step:{}:{}:*", rank, step);
  }
  if (choice.happens(2)) {
    const int every = 1 + choice.any(2);
    const char* async = choice.happens(2) ? "true" : "false";
    one.sets += fmt::format("--set checkpoint.every={} --set checkpoint.async={} ", every, async);
  }
  if (choice.happens(3)) one.sets += "--set evaluation.path=TEXT --set evaluation.every=2 --set evaluation.batches=2 ";
  if (choice.has_hosts())
    for (int rank = 0; rank < one.ranks; ++rank) one.hosts += fmt::format("{}{}", rank == 0 ? "" : ",", rank);
  return one;
}

struct SeedRange {
  unsigned first = 0, count = 0;
};

SeedRange wanted_seeds() {
  const char* text = std::getenv("GANTRY_SEED");
  if (!text) return {0, is_long_form() ? 200u : 3u};
  const std::string range = text;
  const auto colon = range.find(':');
  return {static_cast<unsigned>(std::stoul(range)),
          colon == std::string::npos ? 1 : static_cast<unsigned>(std::stoul(range.substr(colon + 1)))};
}

TEST(ElasticSeeds, AnyListOfLossesAndJoinsIsExact) {
  const SeedRange seeds = wanted_seeds();
  int happened = 0;
  for (unsigned seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const ElasticCase one = elastic_case_of(seed, kLayouts[seed % std::size(kLayouts)]);
    const int faults = expect_exact(one);
    happened += faults;
    fmt::print("seed {}: {} ranks, {} happened of {}\n", seed, one.ranks, faults, one.faults);
    std::fflush(stdout);
  }
  if (seeds.count >= 3) EXPECT_GE(happened, static_cast<int>(seeds.count / 2));
}

}  // namespace
}  // namespace gantry::testing
