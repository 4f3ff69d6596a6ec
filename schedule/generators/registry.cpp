#include <algorithm>
#include <cstdint>
#include <fmt/format.h>

#include "gantry/core/error.h"
#include "gantry/schedule/generators/generator.h"

// Every schedule that Gantry generates. To add one, add a line here and a file in this directory that defines the
// function.
#define GANTRY_FOR_EACH_GENERATOR(apply)                                                                        \
  apply(gpipe) apply(one_f_one_b) apply(interleaved_one_f_one_b) apply(breadth_first) apply(zb_h1) apply(zb_h2) \
      apply(zb_auto) apply(zb_v) apply(v_half) apply(v_min) apply(v_one_f_one_b) apply(dualpipe_v)

namespace gantry::schedule {

#define GANTRY_DECLARE(function) Generator function();
GANTRY_FOR_EACH_GENERATOR(GANTRY_DECLARE)
#undef GANTRY_DECLARE

namespace {

// A schedule with more actions than this comes from a wrong size.
constexpr std::int64_t kMaxForwards = 10'000'000;

const Generator& find_generator(const std::string& name) {
  const auto found = std::ranges::find(generators(), name, &Generator::name);
  if (found != generators().end()) return *found;
  std::string known;
  for (const auto& each : generator_names()) known += (known.empty() ? "" : ", ") + each;
  const std::string near = nearest_name(name, generator_names());
  throw ConfigError({"schedule", "'" + name + "' is not a known schedule", "one of " + known + ", or a .csv file",
                     near.empty() ? "" : "did you mean '" + near + "'?"});
}

// The names of the schedules that are defined for this many chunks.
std::string schedules_with_chunks(int chunks) {
  std::string names;
  for (const auto& each : generators())
    if (each.max_chunks >= chunks) names += (names.empty() ? "" : ", ") + each.name;
  return names;
}

void require_at_least_one(const Generator& generator, const std::string& what, int value) {
  if (value < 1)
    throw ConfigError({"schedule " + generator.name, what + " is " + std::to_string(value), "at least 1", ""});
}

void check_sizes(const Generator& generator, const PipelineSizes& sizes) {
  require_at_least_one(generator, "the number of ranks", sizes.ranks);
  require_at_least_one(generator, "the number of microbatches", sizes.microbatches);
  require_at_least_one(generator, "the number of chunks", sizes.chunks);
  if (sizes.chunks > generator.max_chunks) {
    const std::string others = schedules_with_chunks(sizes.chunks);
    throw ConfigError({"schedule " + generator.name,
                       std::to_string(sizes.chunks) + " chunks per rank are not supported",
                       "at most " + std::to_string(generator.max_chunks),
                       others.empty() ? "use chunks " + std::to_string(generator.max_chunks) : "use " + others});
  }
  // Checked factor by factor: the product of three ints may not fit into 64 bits.
  const std::int64_t stages = std::int64_t{sizes.ranks} * sizes.chunks;
  if (stages > kMaxForwards || stages * sizes.microbatches > kMaxForwards)
    throw ConfigError({"schedule " + generator.name,
                       std::to_string(stages) + " stages times " + std::to_string(sizes.microbatches) + " microbatches",
                       "at most " + std::to_string(kMaxForwards) + " forwards", ""});
}

void check_options(const Generator& generator, const GeneratorOptions& options) {
  const std::string where = "schedule " + generator.name;
  if (options.memory_limit != 0 && !generator.takes_memory_limit)
    throw ConfigError({where, "the schedule has no memory limit", "", "leave the memory limit out"});
  if (options.group_size != 0 && !generator.takes_group_size)
    throw ConfigError({where, "the schedule has no group size", "", "leave the group size out"});
  if (!(options.memory_limit >= 0))
    throw ConfigError({where, fmt::format("the memory limit is {} activations", options.memory_limit), "above 0", ""});
  if (options.group_size < 0)
    throw ConfigError({where, fmt::format("the group size is {} microbatches", options.group_size), "at least 1", ""});
}

}  // namespace

const std::vector<Generator>& generators() {
#define GANTRY_CALL(function) function(),
  static const std::vector<Generator> all = {GANTRY_FOR_EACH_GENERATOR(GANTRY_CALL)};
#undef GANTRY_CALL
  return all;
}

Schedule empty_schedule(const std::string& name, const PipelineSizes& sizes) {
  Schedule schedule;
  schedule.name = name;
  schedule.microbatches = sizes.microbatches;
  schedule.stages_of_rank.resize(sizes.ranks);
  schedule.actions.resize(sizes.ranks);
  for (int chunk = 0; chunk < sizes.chunks; ++chunk)
    for (int rank = 0; rank < sizes.ranks; ++rank) schedule.stages_of_rank[rank].push_back(chunk * sizes.ranks + rank);
  return schedule;
}

Schedule generate(const std::string& name, int ranks, int microbatches, int chunks, const GeneratorOptions& options) {
  const Generator& generator = find_generator(name);
  const PipelineSizes sizes{ranks, microbatches, chunks == 0 ? generator.default_chunks : chunks};
  check_sizes(generator, sizes);
  check_options(generator, options);
  return generator.make(sizes, options);
}

std::vector<std::string> generator_names() {
  std::vector<std::string> names;
  for (const auto& generator : generators()) names.push_back(generator.name);
  return names;
}

}  // namespace gantry::schedule
