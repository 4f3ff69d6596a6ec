// Published steps: the workload and layout of each, and the measured time.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "gantry/models/described/decoder_family.h"
#include "gantry/planner/estimate.h"

namespace gantry::planner::published {

struct Row {
  std::string label;
  Workload workload;
  Layout layout;
  Cluster cluster;
  double measured = 0;       // seconds of a step
  bool calibration = false;  // the cluster's constants were fitted to it
};

inline std::string golden_file(const std::string& name) {
  return std::string(GANTRY_SOURCE_DIR) + "/tests/golden/planner/" + name;
}

inline nlohmann::json tables() { return nlohmann::json::parse(std::ifstream(golden_file("published.json"))); }

// Megatron-LM in these papers: scores are stored, masks are bytes, messages between stages are blocking, and the
// reduction over replicas is not overlapped.
inline Program megatron_program(double gradient_bytes, bool scatters_messages) {
  return {.fused_attention = false,
          .halves_causal = false,
          .keeps_results = false,
          .mask_bytes = 1,
          .gradient_bytes = gradient_bytes,
          .optimizer_bytes = 12,
          .overlaps_gradients = false,
          .blocking_messages = true,
          .scatters_messages = scatters_messages};
}

inline Workload gpt(int hidden, int layers, int heads, int sequence, int batch, const Program& program) {
  const nlohmann::json keys = {
      {"n_embd", hidden}, {"n_layer", layers}, {"n_head", heads}, {"n_positions", sequence}, {"vocab_size", 51200}};
  return {.model = models::decoder_spec("gpt2", keys),
          .sequence = sequence,
          .batch = batch,
          .precision = "float16",
          .program = program};
}

inline Layout pipelined(int tensor, int pipeline, int data, int chunks, int microbatch) {
  return {.tensor = tensor,
          .pipeline = pipeline,
          .data = data,
          .schedule = chunks > 1 ? "interleaved_1f1b" : "1f1b",
          .chunks = chunks,
          .microbatch = microbatch,
          .recompute = Recompute::kFull};
}

// Table 1 of SC'21 (arXiv 2104.04473). Every third row is for calibration.
inline std::vector<Row> sc21_rows() {
  std::vector<Row> rows;
  const nlohmann::json all = tables()["megatron_sc21_table1"]["rows"];
  for (const auto& row : all) {
    const int heads = row[1], hidden = row[2], layers = row[3], tensor = row[4], pipeline = row[5], gpus = row[6];
    const int chunks = row[12].is_null() ? 1 : layers / pipeline / row[12].get<int>();
    rows.push_back({.label = "SC'21 Table 1 " + row[0].dump() + "B",
                    .workload = gpt(hidden, layers, heads, 2048, row[7], megatron_program(2, true)),
                    .layout = pipelined(tensor, pipeline, gpus / tensor / pipeline, chunks, row[11]),
                    .cluster = part_of(load_cluster("selene_a100"), gpus),
                    .measured = row[13],
                    .calibration = rows.size() % 3 == 0});
  }
  return rows;
}

// A model of Table 3 of arXiv 2205.05198, with full recomputation.
inline Row selective_model(const nlohmann::json& row) {
  const int pipeline = row[5], gpus = row[7], tensor = row[4];
  return {.label = "2205.05198 " + row[0].get<std::string>(),
          .workload = gpt(row[2], row[3], row[1], 2048, row[8], megatron_program(4, true)),
          .layout = pipelined(tensor, pipeline, gpus / tensor / pipeline, row[6], row[9]),
          .cluster = part_of(load_cluster("selene_a100"), gpus)};
}

// The five variants of Table 4 and Figure 7 of that paper.
struct Way {
  const char* name;
  Recompute recompute;
  bool sequence_parallel;
};
inline constexpr Way kWays[] = {{"none", Recompute::kNone, false},
                                {"SP", Recompute::kNone, true},
                                {"full", Recompute::kFull, false},
                                {"selective", Recompute::kSelective, false},
                                {"selective+SP", Recompute::kSelective, true}};

inline Row in_way(Row row, const Way& way) {
  row.label += std::string(" ") + way.name;
  row.layout.recompute = way.recompute;
  row.layout.sequence_parallel = way.sequence_parallel;
  return row;
}

// Table 5 of that paper: eight steps, and the step over eight replicas. None is for calibration.
inline std::vector<Row> selective_rows() {
  const nlohmann::json all = tables()["seqsel_2205.05198"];
  std::vector<Row> rows;
  for (std::size_t model = 0; model < all["table3"]["rows"].size(); ++model) {
    const Row base = selective_model(all["table3"]["rows"][model]);
    const auto& seconds = all["table5_iter_s"]["rows"][model];
    rows.push_back(in_way(base, kWays[2]));
    rows.back().measured = seconds[1];
    rows.push_back(in_way(base, kWays[4]));
    rows.back().measured = seconds[2];
  }
  Row replicas = rows[5];
  replicas.label += " dp 8";
  replicas.workload.batch *= 8;
  replicas.layout.data = 8;
  replicas.cluster = part_of(replicas.cluster, 2240);
  replicas.measured = all["dp8_530B_2240gpu"]["iter_s"];
  rows.push_back(std::move(replicas));
  return rows;
}

// One of four groups, by a hash of the row's number. The constants of the cluster are fitted to the first group.
inline std::uint32_t quarter_of(std::uint32_t row) { return (row * 2654435761U) >> 30U; }
inline constexpr std::uint32_t kCalibrationQuarter = 0;

// vTrain's rows: full recomputation, 1F1B and Megatron-DeepSpeed.
inline std::vector<Row> vtrain_rows(const std::string& name) {
  std::ifstream file(golden_file("vtrain_a100_" + name + ".csv"));
  std::vector<Row> rows;
  std::string line;
  std::getline(file, line);
  const bool has_size = line.starts_with("Parameters");
  while (std::getline(file, line)) {
    std::vector<double> cells;
    std::istringstream words(line);
    for (std::string cell; std::getline(words, cell, ',');) cells.push_back(std::stod(cell));
    if (has_size) cells.erase(cells.begin());
    const auto at = [&](int index) { return static_cast<int>(cells.at(index)); };
    rows.push_back({.label = "vTrain h " + std::to_string(at(3)) + " L " + std::to_string(at(5)) + " t " +
                             std::to_string(at(7)) + " d " + std::to_string(at(8)) + " p " + std::to_string(at(9)) +
                             " B " + std::to_string(at(1)) + " b " + std::to_string(at(2)),
                    .workload = gpt(at(3), at(5), at(4), at(6), at(1), megatron_program(2, false)),
                    .layout = pipelined(at(7), at(9), at(8), 1, at(2)),
                    .cluster = part_of(load_cluster("vtrain_a100"), at(0)),
                    .measured = cells.at(10) / 1000,
                    .calibration = quarter_of(static_cast<std::uint32_t>(rows.size())) == kCalibrationQuarter});
  }
  return rows;
}

}  // namespace gantry::planner::published
