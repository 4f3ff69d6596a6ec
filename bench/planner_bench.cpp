// Compares the planner's estimates with all published measurements of the project, as the tables of
// bench/RESULTS.md, and measures the largest searches.
//   planner_bench [--all] [--fit]
// With --all every step that vTrain measured on one node has a row; otherwise the
// table has the errors by model and devices. With --fit the constants of vtrain_a100
// are fitted to each quarter of vTrain's rows in turn. This takes a minute.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "../tests/planner/published_fit.h"
#include "gantry/planner/search.h"

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

// Compares the estimated and the measured order of the steps of each group, by seconds per sample. Prints the
// number of groups in which the layout with the best estimate was measured within 5% of the best one, and the
// mean of Kendall's tau.
void print_ranking(const std::string& title, const std::map<std::string, std::vector<Row>>& groups) {
  int near = 0, all = 0;
  double tau = 0;
  for (const auto& [name, rows] : groups) {
    if (rows.size() < 2) continue;
    std::vector<std::pair<double, double>> pairs;  // estimated, measured
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

// Searches with every key open, on 16,384 devices.
void print_searches() {
  const std::pair<const char*, const char*> models[] = {
      {"175 billion parameters",
       "gpt2, config: {n_embd: 12288, n_layer: 96, n_head: 96, n_positions: 4096, vocab_size: 51200}"},
      {"64 experts",
       "mixtral, config: {hidden_size: 6144, intermediate_size: 8192, num_hidden_layers: 56, num_attention_heads: 48, "
       "num_key_value_heads: 8, num_local_experts: 64, num_experts_per_tok: 4}"}};
  fmt::print(
      "\nSearches with every key open, on 16,384 devices of h100_80g\n\n"
      "| model | layouts | bounds | simulated | seconds | peak MiB | best |\n|---|---|---|---|---|---|---|\n");
  for (const auto& [name, model] : models) {
    const auto path = std::filesystem::temp_directory_path() / fmt::format("planner_bench.{}.yaml", getpid());
    std::ofstream(path)
        << "model: {policy: " << model
        << "}\ndata: {format: text, path: x, sequence_length: 4096, batch_size: 16384}\n"
           "precision: bfloat16\nparallel: {context: auto, expert: auto, vocabulary: auto}\nschedule: {layers: auto}\n";
    const auto request = gantry::planner::read_plan_request(path.string(), {}, /*only_stated=*/false);
    std::filesystem::remove(path);
    const auto start = std::chrono::steady_clock::now();
    const auto found =
        gantry::planner::search(request, gantry::planner::part_of(gantry::planner::load_cluster("h100_80g"), 16384));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print("| {} | {} | {} | {} | {:.1f} | {} | {} |\n", name, found.layouts, found.bounded, found.estimated,
               took.count(), usage.ru_maxrss / 1024, found.best.empty() ? "" : describe(found.best.front().layout));
  }
}

// Fits vTrain's constants to each quarter of its rows and prints the mean error on the other three quarters.
void print_fits() {
  namespace published = gantry::planner::published;
  const auto& constants = published::vtrain_constants();
  std::vector<std::vector<double>> columns(constants.size() + 2);
  fmt::print("\nvTrain's constants by one quarter of its rows, and the mean error of the other three\n\n| quarter |");
  for (const auto& constant : constants) fmt::print(" {} |", constant.name);
  fmt::print(" clusters | one node |\n|---|");
  for (std::size_t column = 0; column < columns.size(); ++column) fmt::print("---|");
  for (std::uint32_t quarter = 0; quarter < 4; ++quarter) {
    auto cluster = gantry::planner::load_cluster("vtrain_a100");
    const auto rows = published::vtrain_quarter(quarter, /*within=*/true);
    // Start from the manufacturer's constants, so that the other quarters have no influence.
    const auto maker = gantry::planner::load_cluster("a100_80g");
    cluster.device = maker.device, cluster.within.call_seconds = maker.within.call_seconds;
    cluster.between = maker.between;
    cluster = published::fitted(cluster, constants, rows);
    const auto others = published::vtrain_quarter(quarter, /*within=*/false);
    std::vector<double> row;
    for (const auto& constant : constants) row.push_back(constant.of(cluster));
    for (const auto& kind : others) row.push_back(100 * published::mean_error(kind, cluster));
    fmt::print("\n| {} |", quarter);
    for (std::size_t column = 0; column < row.size(); ++column) {
      columns[column].push_back(row[column]);
      fmt::print(" {:.3g} |", row[column]);
    }
    fmt::print(" largest share of one row:");
    for (const auto& constant : constants) fmt::print(" {:.2f}", published::largest_share(constant, cluster, rows));
  }
  const auto spread = [](const std::vector<double>& values) {
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    double square = 0;
    for (const double value : values) square += (value - mean) * (value - mean);
    return fmt::format("{:.3g} ± {:.1g}", mean, std::sqrt(square / static_cast<double>(values.size() - 1)));
  };
  fmt::print("\n| mean ± deviation |");
  for (const auto& column : columns) fmt::print(" {} |", spread(column));
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  namespace published = gantry::planner::published;
  const auto asked = [&](std::string_view flag) { return std::find(argv + 1, argv + argc, flag) != argv + argc; };
  print_searches();
  print_layers();
  print_rows("arXiv 2205.05198 Table 5, and 530B over eight replicas", published::selective_rows());
  print_rows("SC'21 Table 1 (arXiv 2104.04473)", published::sc21_rows());
  print_rows("vTrain's steps on clusters", published::vtrain_rows("clusters"));
  const std::vector<Row> node = published::vtrain_rows("one_node");
  if (asked("--all"))
    print_rows("vTrain's steps on one node", node);
  else
    print_groups(node);
  print_rankings();
  if (asked("--fit")) print_fits();
}
