// The load of a run's experts over time, at the resolution of the report's page. Memory does not grow with
// the run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry {

class ExpertHistory {
 public:
  // Maximum number of stretches of steps. If there are more, adjacent stretches are joined in pairs.
  static constexpr std::size_t kMost = 60;

  // Adds a line of metrics.jsonl. A line without experts, or with other numbers of layers or experts than the
  // first line, is ignored.
  void add(const nlohmann::json& line);
  // Returns {routers: [path], steps: [last step of each stretch], loads: [per stretch: [per router: [per
  // expert: its tokens / the mean]]], dropped: number of dropped tokens}. Null if no line had experts.
  nlohmann::json data() const;

 private:
  struct Stretch {
    double step = 0;  // the last step
    std::int64_t length = 0;
    std::vector<std::vector<double>> tokens;  // by router and expert
  };
  static void join(Stretch& first, const Stretch& second);

  std::vector<std::string> routers_;
  std::vector<Stretch> stretches_;  // the last stretch may be shorter
  std::int64_t longest_ = 1;        // steps in a complete stretch
  double dropped_ = 0;
};

}  // namespace gantry
