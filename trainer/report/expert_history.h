// How a run's experts were used, as far as a page shows it: memory does not grow with the run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gantry {

class ExpertHistory {
 public:
  // Stretches of steps that are kept: where there are more, each two become one.
  static constexpr std::size_t kMost = 60;

  // Of a line of metrics.jsonl; one without experts, or with others than the first, says nothing.
  void add(const nlohmann::json& line);
  // {routers: [path], steps: [the last of each stretch], loads: [a stretch: [a router: [each expert's tokens over the
  // mean]]], dropped}; null where no line had experts.
  nlohmann::json data() const;

 private:
  struct Stretch {
    double step = 0;  // the last one
    std::int64_t length = 0;
    std::vector<std::vector<double>> tokens;  // by router and expert
  };
  static void join(Stretch& first, const Stretch& second);

  std::vector<std::string> routers_;
  std::vector<Stretch> stretches_;  // the last may be shorter
  std::int64_t longest_ = 1;        // of a whole stretch, in steps
  double dropped_ = 0;
};

}  // namespace gantry
