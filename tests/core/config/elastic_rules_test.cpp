// The section `elastic`, and the keys that an elastic job rejects.
#include <gtest/gtest.h>

#include "gantry/core/config.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

std::string elastic_fault(const std::string& more, const std::string& elastic = "{}") {
  const std::string text = "model: {policy: gpt2, config: {n_layer: 2}}\nelastic: " + elastic + "\n" + more;
  try {
    Config::parse(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kSound = "schedule: {microbatch_size: 2}\n";

TEST(ElasticRules, ASectionTurnsItOn) {
  EXPECT_FALSE(Config::parse("model: {}").elastic.is_on());
  const Config config = Config::parse(std::string("model: {}\nelastic: {}\n") + kSound);
  EXPECT_TRUE(config.elastic.is_on());
  EXPECT_EQ(config.elastic.min_replicas, 1);
  EXPECT_EQ(config.elastic.max_replicas, 0);
  EXPECT_TRUE(config.elastic.rejoin);
  EXPECT_EQ(config.elastic.heartbeat, 1);
  const Config again = Config::parse(Config::parse(std::string("model: {}\nelastic: {min_replicas: 2, max_replicas: 4, "
                                                               "rejoin: false, heartbeat: 0.5}\n") +
                                                   kSound)
                                         .to_yaml());
  EXPECT_EQ(again.elastic.min_replicas, 2);
  EXPECT_EQ(again.elastic.max_replicas, 4);
  EXPECT_FALSE(again.elastic.rejoin);
  EXPECT_EQ(again.elastic.heartbeat, 0.5);
}

TEST(ElasticRules, OtherSettingsAreRejectedByName) {
  EXPECT_EQ(elastic_fault(kSound), "");
  EXPECT_EQ(elastic_fault(std::string(kSound) + "comm: {backend: tcp}\nparallel: {tensor: 2, pipeline: 2}"), "");
  const auto names = [](const std::string& key, const std::string& more, const std::string& elastic = "{}") {
    const std::string said = elastic_fault(more, elastic);
    EXPECT_NE(said.find(key + ": "), std::string::npos) << more << "\n  " << said;
  };
  names("schedule.microbatch_size", "");
  names("schedule.microbatch_size", "schedule: {microbatches: 2}");
  for (const char* zero : {"1", "2", "3"})
    names("parallel.zero", std::string(kSound) + "parallel: {zero: " + zero + "}");
  names("parallel.expert", std::string(kSound) + "parallel: {expert: 2}");
  for (const char* backend : {"local", "mpi", "nccl", "ipc"})
    names("comm.backend", std::string(kSound) + "comm: {backend: " + backend + "}");
  names("evaluation.ema", std::string(kSound) +
                              "data: {format: text, path: x, batch_size: 8}\nevaluation: {path: y, ema: true}\n"
                              "train: {ema: 0.9}");
  names("train.objective.top_k",
        std::string(kSound) + "train: {objective: {name: distill, teacher: x, top_k: 4, teacher_cache: c}}");
  names("profile.active", std::string(kSound) + "profile: {active: 1}");
  names("elastic.max_replicas", kSound, "{min_replicas: 3, max_replicas: 2}");
  names("elastic.min_replicas", std::string(kSound) + "parallel: {data: 2}", "{min_replicas: 3}");
  names("parallel.data", std::string(kSound) + "parallel: {data: 4}", "{max_replicas: 3}");
  names("data.batch_size", std::string(kSound) + "data: {format: text, path: x, batch_size: 2}", "{max_replicas: 3}");
  names("elastic.heartbeat", kSound, "{heartbeat: 0}");
}

}  // namespace
}  // namespace gantry
