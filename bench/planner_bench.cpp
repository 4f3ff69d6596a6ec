// The planner's estimates beside every published row that the project has, as the tables of docs/planner.md.
//   planner_bench [--all]
// With --all every one of vTrain's steps on one node has a row; else their errors by model and devices.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "../tests/planner/published_rows.h"

namespace {

using gantry::planner::LayerSeconds;
using gantry::planner::published::Row;

double estimated(const Row& row) {
  return gantry::planner::estimate(row.workload, row.layout, row.cluster).step_seconds;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double error) { sum += std::abs(error), ++count; }
  std::string text() const { return count == 0 ? "" : fmt::format("{:.1f}% ({})", 100 * sum / count, count); }
};

void print_rows(const std::string& title, const std::vector<Row>& rows) {
  fmt::print("\n{}\n\n| step | for | measured s | estimated s | error |\n|---|---|---|---|---|\n", title);
  Mean calibration, test;
  for (const Row& row : rows) {
    const double seconds = estimated(row), error = seconds / row.measured - 1;
    (row.calibration ? calibration : test).add(error);
    fmt::print("| {} | {} | {:.4g} | {:.4g} | {:+.1f}% |\n", row.label, row.calibration ? "calibration" : "test",
               row.measured, seconds, 100 * error);
  }
  fmt::print("\nMean error: test {}{}\n", test.text(),
             calibration.count > 0 ? ", calibration " + calibration.text() : "");
}

void print_layers() {
  namespace published = gantry::planner::published;
  const auto all = published::tables()["seqsel_2205.05198"];
  const Row base = published::selective_model(all["table3"]["rows"][0]);
  fmt::print(
      "\nA layer of the 22B model, arXiv 2205.05198 Table 4, in ms (calibration)\n\n"
      "| way | forward | estimated | backward | estimated |\n|---|---|---|---|---|\n");
  for (std::size_t way = 0; way < std::size(published::kWays); ++way) {
    const Row row = in_way(base, published::kWays[way]);
    const LayerSeconds seconds =
        gantry::planner::layer_seconds(row.workload, row.workload.model.layers.front(), row.layout, row.cluster);
    const auto& measured = all["table4_22B_layer_ms"]["rows"][way];
    fmt::print("| {} | {} | {:.1f} | {} | {:.1f} |\n", published::kWays[way].name, measured[1].get<double>(),
               1000 * seconds.forward.sum(), measured[2].get<double>(),
               1000 * (seconds.input_gradient.sum() + seconds.weight_gradient.sum() + seconds.again.sum()));
  }
}

void print_groups(const std::vector<Row>& rows) {
  std::map<std::tuple<std::int64_t, int>, std::pair<Mean, Mean>> groups;
  Mean calibration, test;
  for (const Row& row : rows) {
    const double error = estimated(row) / row.measured - 1;
    auto& [of_calibration, of_test] = groups[{row.workload.model.hidden, row.cluster.ranks()}];
    (row.calibration ? of_calibration : of_test).add(error);
    (row.calibration ? calibration : test).add(error);
  }
  fmt::print(
      "\nvTrain's steps on one node, mean errors and (rows)\n\n| hidden | devices | test | calibration |\n"
      "|---|---|---|---|\n");
  for (const auto& [key, means] : groups)
    fmt::print("| {} | {} | {} | {} |\n", std::get<0>(key), std::get<1>(key), means.second.text(), means.first.text());
  fmt::print("\nMean error: test {}, calibration {}\n", test.text(), calibration.text());
}

// Of groups of measured steps: in how many the layout that is estimated best was measured within 5% of the best, and
// the mean of Kendall's tau between both orders, by seconds per sample.
void print_ranking(const std::string& title, const std::map<std::string, std::vector<Row>>& groups) {
  int near = 0, all = 0;
  double tau = 0;
  for (const auto& [name, rows] : groups) {
    if (rows.size() < 2) continue;
    std::vector<std::pair<double, double>> pairs;  // estimated and measured
    for (const Row& row : rows) {
      const auto samples = static_cast<double>(row.workload.batch);
      pairs.emplace_back(estimated(row) / samples, row.measured / samples);
    }
    double best = pairs.front().second, agreeing = 0;
    for (const auto& pair : pairs) best = std::min(best, pair.second);
    near += std::min_element(pairs.begin(), pairs.end())->second <= 1.05 * best ? 1 : 0;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        agreeing += (pairs[i].first < pairs[j].first) == (pairs[i].second < pairs[j].second) ? 1 : -1;
    tau += agreeing / (static_cast<double>(pairs.size() * (pairs.size() - 1)) / 2);
    ++all;
  }
  fmt::print("{}: best within 5% in {} of {} groups, Kendall's tau {:.2f}\n", title, near, all, tau / all);
}

void print_rankings() {
  std::map<std::string, std::vector<Row>> by_model, by_batch;
  for (const char* name : {"clusters", "one_node"})
    for (const Row& row : gantry::planner::published::vtrain_rows(name)) {
      const auto& model = row.workload.model;
      const std::string key = fmt::format("{} {} {} {}", name, model.hidden, model.layers.size(), row.cluster.ranks());
      by_model[key].push_back(row);
      by_batch[fmt::format("{} {}", key, row.workload.batch)].push_back(row);
    }
  fmt::print("\nvTrain's layouts in order\n\n");
  print_ranking("- Of one model on as many devices", by_model);
  print_ranking("- Of equal batches too", by_batch);
}

}  // namespace

int main(int argc, char** argv) {
  namespace published = gantry::planner::published;
  print_layers();
  print_rows("arXiv 2205.05198 Table 5, and 530B over eight replicas", published::selective_rows());
  print_rows("SC'21 Table 1 (arXiv 2104.04473)", published::sc21_rows());
  print_rows("vTrain's steps on clusters", published::vtrain_rows("clusters"));
  const std::vector<Row> node = published::vtrain_rows("one_node");
  if (argc > 1 && argv[1] == std::string_view("--all"))
    print_rows("vTrain's steps on one node", node);
  else
    print_groups(node);
  print_rankings();
}
