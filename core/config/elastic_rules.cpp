#include "gantry/core/config/elastic_rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

namespace gantry {
namespace {

struct ElasticObstacle {
  bool is_there;
  const char* key;
  std::string what, expected, remedy;
};

}  // namespace

std::optional<ErrorText> fault_of_elastic(const Config& config) {
  const ElasticConfig& elastic = config.elastic;
  if (!elastic.is_on()) return std::nullopt;
  const ParallelConfig& parallel = config.parallel;
  const auto is = [](const auto& value) { return fmt::format("the value is {}", value); };
  const bool is_tcp = config.comm.backend == "auto" || config.comm.backend == "tcp";
  const int most = std::max(elastic.max_replicas, parallel.data);
  const ElasticObstacle all[] = {
      {elastic.max_replicas > 0 && elastic.max_replicas < elastic.min_replicas, "elastic.max_replicas",
       fmt::format("{} replicas are less than elastic.min_replicas {}", elastic.max_replicas, elastic.min_replicas),
       "at least elastic.min_replicas", "raise it, or lower elastic.min_replicas"},
      {parallel.data > 0 && parallel.data < elastic.min_replicas, "elastic.min_replicas",
       fmt::format("{} replicas are more than parallel.data {}", elastic.min_replicas, parallel.data),
       "at most parallel.data", "lower it, or raise parallel.data"},
      {elastic.max_replicas > 0 && parallel.data > elastic.max_replicas, "parallel.data",
       fmt::format("{} replicas are more than elastic.max_replicas {}", parallel.data, elastic.max_replicas),
       "at most elastic.max_replicas", "lower it, or raise elastic.max_replicas"},
      {!config.data.format.empty() && config.data.batch_size < most, "data.batch_size",
       fmt::format("{} samples are too few for the {} replicas of an elastic job", config.data.batch_size, most),
       fmt::format("at least {}", most), "raise it, or lower elastic.max_replicas"},
      {!config.schedule.microbatch_size, "schedule.microbatch_size",
       "the key is missing, but with fewer replicas each has more samples", "the samples of a microbatch",
       "set schedule.microbatch_size in place of schedule.microbatches"},
      {parallel.zero > 0, "parallel.zero",
       is(parallel.zero) + ", so a lost rank takes its part of the optimizer state with it", "0 with elastic",
       "set it to 0, or use gantry launch --restarts in place of elastic"},
      {parallel.expert > 1, "parallel.expert",
       is(parallel.expert) + ", so a lost rank takes its experts from other replicas", "1 with elastic",
       "set it to 1, or use gantry launch --restarts in place of elastic"},
      {!is_tcp, "comm.backend", is(config.comm.backend) + ", whose jobs cannot continue without a rank",
       "tcp with elastic", "set it to tcp, and start the job with gantry launch --backend tcp"},
      {config.evaluation.only, "evaluation.only", "the run has no steps to continue", "false with elastic",
       "remove one of the two keys"},
      {config.evaluation.ema, "evaluation.ema",
       "a rank that is lost during an evaluation would leave the averages in place of the weights",
       "false with elastic", "remove the key, and evaluate the averages after the run with evaluation.only"},
      {config.train.objective.top_k > 0, "train.objective.top_k",
       is(config.train.objective.top_k) + ", and elastic jobs do not support stored log-probabilities",
       "0 with elastic", "remove the key, or use gantry launch --restarts in place of elastic"},
      {config.profile.active > 0, "profile.active", "a profile covers the same ranks in all its steps",
       "no section profile with elastic", "remove one of the two sections"},
  };
  for (const ElasticObstacle& one : all)
    if (one.is_there) return ErrorText{one.key, one.what, one.expected, one.remedy};
  return std::nullopt;
}

}  // namespace gantry
