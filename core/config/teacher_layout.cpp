#include "gantry/core/config/teacher_layout.h"

#include <fmt/format.h>
#include <string>

namespace gantry {
namespace {

constexpr const char* kKey = "train.objective.teacher_parallel";

// The ranks that hold one teacher.
long long ranks_of(const TeacherParallelConfig& layout) {
  return static_cast<long long>(layout.tensor) * layout.pipeline;
}

std::optional<ErrorText> fault_of_sizes(const TeacherParallelConfig& layout, int ranks, const std::string& which) {
  if (ranks % ranks_of(layout) == 0) return std::nullopt;
  return ErrorText{kKey,
                   fmt::format("tensor {} * pipeline {} = {} does not divide the {} ranks of {}", layout.tensor,
                               layout.pipeline, ranks_of(layout), ranks, which),
                   "sizes whose product divides the ranks", "change tensor or pipeline of the teacher"};
}

}  // namespace

std::optional<ErrorText> fault_of_teacher(const Config& config) {
  const auto& layout = config.train.objective.teacher_parallel;
  if (!layout) return std::nullopt;
  const ParallelConfig& parallel = config.parallel;
  // Replicas of the student leave and join.
  const int replica = parallel.tensor * parallel.pipeline * parallel.context;
  if (config.elastic.is_on()) return fault_of_sizes(*layout, replica, "a replica of an elastic job");
  return parallel.data > 0 ? fault_of_sizes(*layout, config.ranks(), "this job") : std::nullopt;
}

std::optional<Mesh> teacher_mesh(const Config& config, int ranks) {
  const auto& layout = config.train.objective.teacher_parallel;
  if (!layout) return std::nullopt;
  if (const auto fault = fault_of_sizes(*layout, ranks, "this job")) throw ConfigError(*fault);
  return Mesh::hybrid(ranks, layout->pipeline, /*data=*/0, layout->tensor, config.parallel.order);
}

}  // namespace gantry
