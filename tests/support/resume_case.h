// Small runs of `gantry train` that save, stop and resume. Checks that their results do not depend on
// interruptions.
#pragma once

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>

#include "program.h"

namespace gantry::testing {

constexpr int kSteps = 8, kStop = 3;

inline std::string write_config(const ScratchFolder& scratch, const std::string& sections, int width = 16,
                                int steps = kSteps, int batch = 4) {
  const std::string text = some_letters(3000, 23);
  return scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: gpt2, config: {{n_embd: {}, n_layer: 4, n_head: 2, vocab_size: 256, n_positions: "
                  "32, resid_pdrop: 0.1}}}}\ndata: {{format: text, path: \"{}\", sequence_length: 32, batch_size: "
                  "{}}}\ntrain: {{steps: {}}}\ncomm: {{threads_per_rank: 1}}\n{}\n",
                  width, scratch.write("text.txt", text), batch, steps, sections));
}

inline std::string train_line(const ScratchFolder& scratch, const std::string& config, const std::string& name,
                              const std::string& sets = "") {
  return fmt::format("{} train {} --set output={} --set checkpoint.path={}/c {}", gantry_program(), config,
                     scratch / name, scratch / name, sets);
}

// The part of each metrics line that must not depend on interruptions: all fields before the learning rate.
inline std::string losses_of(const ScratchFolder& scratch, const std::string& name) {
  std::string losses;
  std::istringstream lines(read_file(scratch / (name + "/metrics.jsonl")));
  for (std::string line; std::getline(lines, line);) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
  return losses;
}

inline long lines_of(const ScratchFolder& scratch, const std::string& name) {
  const std::string losses = losses_of(scratch, name);
  return std::count(losses.begin(), losses.end(), '\n');
}

inline void expect_same_end(const ScratchFolder& scratch, const std::string& a, const std::string& b, int steps,
                            int ranks) {
  EXPECT_EQ(losses_of(scratch, a), losses_of(scratch, b));
  EXPECT_EQ(lines_of(scratch, a), steps);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string file = fmt::format("/c/step-{:06}/rank-{:05}.safetensors", steps, rank);
    const std::string bytes = read_file(scratch / (a + file));
    EXPECT_FALSE(bytes.empty()) << file;
    EXPECT_TRUE(bytes == read_file(scratch / (b + file))) << file << " differs";
  }
}

// Trains for 4 steps and saves after the second and the fourth. Returns the path of the configuration.
inline std::string write_saved_run(const ScratchFolder& scratch, const std::string& name) {
  const std::string config = write_config(scratch, "checkpoint: {every: 2}", 16, 4);
  const Outcome saved = run_program(train_line(scratch, config, name));
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  return config;
}

// Writes tokens below 256. If not `is_sound`, the last token is outside the vocabulary of every model here.
inline std::string write_tokens(const ScratchFolder& scratch, const std::string& name, int tokens, bool is_sound) {
  std::string bytes;
  for (int i = 0; i < tokens; ++i) bytes += {static_cast<char>('a' + i * i % 23), '\0'};
  if (!is_sound) bytes.replace(bytes.size() - 2, 2, "\xff\x7f");
  return scratch.write(name, bytes);
}

inline std::string evaluated_run(const ScratchFolder& scratch, int steps, int held_out, bool is_sound) {
  return write_config(scratch,
                      fmt::format("evaluation: {{path: {}}}", write_tokens(scratch, "held_out", held_out, is_sound)),
                      16, steps) +
         " --set data.format=tokens --set data.path=" + write_tokens(scratch, "tokens", 3000, true);
}

}  // namespace gantry::testing
