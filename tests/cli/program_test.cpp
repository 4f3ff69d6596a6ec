// The program as a user meets it: help, exit codes, one-line errors, resume, and the same losses over MPI.
#include "program.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sstream>

namespace gantry::testing {
namespace {

const std::string kGoldenGpt2 = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/gpt2";

std::string config_text(const ScratchFolder& scratch, const std::string& extra = "") {
  const std::string text = scratch.write("text.txt", std::string(400, 'a') + std::string(400, 'b'));
  return fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 16, n_layer: 3, n_head: 2, vocab_size: 256, n_positions: 16, "
      "resid_pdrop: 0.1}}}}\ndata: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 4}}\n"
      "train: {{steps: 6}}\n{}",
      text, extra);
}

struct BadRun {
  std::string arguments;  // GOLDEN and FOLDER stand for paths
  int exit_code;
  const char* said;
};

std::string filled(std::string text, const ScratchFolder& scratch) {
  for (const auto& [name, value] :
       {std::pair<std::string, std::string>{"GOLDEN", kGoldenGpt2}, {"FOLDER", scratch.path()}})
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name)) text.replace(at, name.size(), value);
  return text;
}

TEST(Program, BadInputIsOneLineWithItsExitCode) {
  const ScratchFolder scratch;
  scratch.write("train.yaml", config_text(scratch));
  scratch.write("broken.yaml", "model: [");
  scratch.write("lfs.safetensors", "version https://git-lfs.github.com/spec/v1\n");
  scratch.write("broken.csv", "0F0,0B0\n1B0,1F0\n");
  const BadRun runs[] = {
      {"", 2, "subcommand"},
      {"trian x", 2, "did you mean 'train'?"},
      {"train", 2, "config"},
      {"train --nope x", 2, "gantry train"},
      {"train FOLDER/none.yaml", 3, "cannot be read"},
      {"train FOLDER/broken.yaml", 3, "FOLDER/broken.yaml:1:"},
      {"train FOLDER/train.yaml --set parallel.tensr=2", 3, "--set parallel.tensr"},
      {"train FOLDER/train.yaml --set parallel.tensor=3", 3,
       "parallel.tensor: 3 ranks for 2 query heads; expected at most 2; lower parallel.tensor"},
      {"train FOLDER/train.yaml --set model.policy=mixtral --set 'model.config={num_local_experts: 2, hidden_size: 16, "
       "intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 256}' "
       "--set parallel.data=3 --set parallel.expert=3",
       3, "parallel.expert: 3 ranks for 2 experts; expected at most 2; lower parallel.expert"},
      {"train FOLDER/train.yaml --set experts.z_loss=0.1", 3,
       "experts.z_loss: the key is set, but the model has no experts"},
      {"train FOLDER/train.yaml --set parallel.context_method=ring", 3,
       "parallel.context_method: the key has no effect with parallel.context 1"},
      {"train FOLDER/train.yaml --set parallel.context=2 --set parallel.context_method=rings", 3,
       "did you mean 'ring'?"},
      {"train FOLDER/train.yaml --set parallel.context=4 --set parallel.context_method=ulysses", 3,
       "ulysses over 4 ranks, but 2 heads over tensor 1 leave 2 heads per rank"},
      {"train FOLDER/train.yaml --set parallel.data=2 --set parallel.expert=2", 3,
       "parallel.expert: the value is 2, but the model has no experts"},
      {"train FOLDER/train.yaml --set parallel.data=2 --set parallel.expert=3", 3,
       "3 over the 2 ranks that share a stage"},
      {"train FOLDER/train.yaml --set parallel.pipeline=4", 3, "3 layers over 4 stages"},
      {"train FOLDER/train.yaml --set model.policy=gpt9", 3, "did you mean 'gpt2'?"},
      {"train FOLDER/train.yaml --set model.config.n_embd=15", 3, "a multiple of n_head 2"},
      {"train FOLDER/train.yaml --set model.config.n_layer=x", 3, "model.config.n_layer"},
      {"train FOLDER/train.yaml --set model.config.activation_function=swoosh", 3, "activation_function"},
      {"train FOLDER/train.yaml --set model.config.vocab_size=100", 4, "vocabulary is 100"},
      {"train FOLDER/train.yaml --set data.sequence_length=17", 3, "longer than the model's 16 positions"},
      {"train FOLDER/train.yaml --set data.path=FOLDER/nothing", 4, "matches no file"},
      {"train FOLDER/train.yaml --set data.path=FOLDER/broken.yaml --set data.sequence_length=16", 4,
       "there are 8 tokens; expected at least sequence_length 16 + 1 = 17"},
      {"train FOLDER/train.yaml --set data.batch_size=1 --set parallel.data=2", 3, "1 samples over data 2 replicas"},
      {"train FOLDER/train.yaml --set output=/proc/none", 6, "/proc/none"},
      {"train FOLDER/train.yaml --set checkpoint.path=/proc/none", 6, "/proc/none"},
      {"train FOLDER/train.yaml --set checkpoint.resume=FOLDER", 5, "no complete checkpoint"},
      {"train FOLDER/train.yaml --set optimizer.lr=1.0e+30", 8, "finite"},
      {"train FOLDER/train.yaml --set schedule.layers=\"[1,2,3]\"", 3, "1 stages"},
      {"train FOLDER/train.yaml --set schedule.layers=\"E|L\"", 3, "2 stages with 0 layers"},
      {"train FOLDER/train.yaml --set comm.backend=gloo", 3, "comm.backend"},
      {"train FOLDER/train.yaml --set libraries=[FOLDER/none.so]", 3, "none.so"},
      {"train FOLDER/train.yaml --set optimizer.no_decay=[nothing]", 3, "matches no parameter"},
      {"forward --model FOLDER --batch GOLDEN/batch.safetensors --output FOLDER/o", 4, "config.json"},
      {"forward --model GOLDEN --batch FOLDER/none --output FOLDER/o", 4, "none"},
      {"forward --model GOLDEN --batch FOLDER/lfs.safetensors --output FOLDER/o", 4, "Git LFS pointer"},
      {"forward --model GOLDEN --batch GOLDEN/grads.safetensors --output FOLDER/o", 4, "the file has an entry"},
      {"forward --model GOLDEN --batch GOLDEN/batch.safetensors --output /proc/none/o", 6, "/proc/none/o"},
      {"forward --model GOLDEN --batch GOLDEN/batch.safetensors --output FOLDER/o --set parallel.tensor=5", 3,
       "parallel.tensor: 5 ranks for 4 query heads"},
      {"forward --model GOLDEN --batch GOLDEN/batch.safetensors --output FOLDER/o --set precision=float8", 3,
       "precision"},
      {"checkpoint export FOLDER FOLDER/e", 5, "no complete checkpoint"},
      {"checkpoint", 2, "subcommand"},
      {"config FOLDER/none.yaml", 3, "cannot be read"},
      {"config FOLDER", 3, "FOLDER: the file cannot be read; expected a configuration file"},
      {"train FOLDER", 3, "FOLDER: the file cannot be read; expected a configuration file"},
      {"plan FOLDER --cluster h200", 3, "FOLDER: the file cannot be read; expected a configuration file"},
      {"data encode --tokenizer byte FOLDER", 4, "FOLDER: the file cannot be read; expected a text file"},
      {"config FOLDER/train.yaml --set parallel.pipeline=5", 3, "3 layers over 5 stages"},
      {"schedule show 1f2b -p 2 -m 2", 3, "1f1b"},
      {"schedule check FOLDER/broken.csv", 4, "1B0"},
      {"schedule show 1f1b -p 0 -m 2", 3, "at least 1"},
  };
  for (const auto& [arguments, exit_code, said] : runs) {
    const Outcome run = run_program(filled(gantry_program() + " " + arguments, scratch));
    EXPECT_EQ(run.exit_code, exit_code) << arguments << "\n" << run.err;
    EXPECT_EQ(run.err.rfind("error: ", 0), 0u) << arguments << "\n" << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << arguments << "\n" << run.err;
    EXPECT_NE(run.err.find(filled(said, scratch)), std::string::npos) << arguments << "\n"
                                                                      << run.err << "\n not " << said;
  }
}

TEST(Program, HelpIsForEveryCommandAndNeedsNothing) {
  for (const char* command : {"--help", "help", "help train", "train --help", "forward --help", "checkpoint --help",
                              "checkpoint export --help", "schedule --help", "schedule simulate --help",
                              "config --help", "doctor", "--version"}) {
    const Outcome run = run_program("cd / && env -i " + gantry_program() + " " + command);
    EXPECT_EQ(run.exit_code, 0) << command << run.err;
    EXPECT_FALSE(run.out.empty()) << command;
    EXPECT_EQ(run.err, "") << command;
  }
}

std::string losses_of(const std::string& metrics) {
  std::string losses;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) losses += line.substr(0, line.find(",\"lr\"")) + "\n";
  return losses;
}

TEST(Program, ResumesToTheSameBits) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml",
      config_text(scratch,
                  "parallel: {pipeline: 2, tensor: 2}\nschedule: {microbatches: 2}\nlr_schedule: {name: cosine}\n"));
  const auto train = [&](const std::string& name, const std::string& sets) {
    return run_program(gantry_program() + " train " + config + " --set output=" + (scratch / name) +
                       " --set checkpoint.path=" + (scratch / name + "/c") + sets);
  };
  ASSERT_EQ(train("whole", "").exit_code, 0);
  ASSERT_EQ(train("parts", " --set checkpoint.every=3 --set checkpoint.keep=1").exit_code, 0);
  run_program("rm -r " + (scratch / "parts/c/step-000006"));
  // Only the sixth was kept: nothing to resume from, so the run starts from scratch, and its numbers are the same.
  ASSERT_EQ(train("parts", " --set checkpoint.every=3 --set checkpoint.resume=auto").exit_code, 0);
  run_program("rm -r " + (scratch / "parts/c/step-000006"));
  const Outcome resumed = train("parts", " --set checkpoint.resume=auto");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("at step 3"), std::string::npos) << resumed.out;
  EXPECT_EQ(losses_of(read_file(scratch / "parts/metrics.jsonl")),
            losses_of(read_file(scratch / "whole/metrics.jsonl")));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string file = "/c/step-000006/rank-0000" + std::to_string(rank) + ".safetensors";
    EXPECT_EQ(read_file(scratch / "parts" + file), read_file(scratch / "whole" + file)) << rank;
    EXPECT_FALSE(read_file(scratch / "whole" + file).empty());
  }
  // Another layout reads the same checkpoint.
  run_program("rm -r " + (scratch / "parts/c/step-000006"));
  const Outcome other =
      train("parts", " --set checkpoint.resume=auto --set parallel.tensor=1 --set parallel.pipeline=3");
  EXPECT_EQ(other.exit_code, 0) << other.err;
  // A flipped byte is damage.
  run_program("printf X | dd of=" + (scratch / "parts/c/step-000003/rank-00000.safetensors") +
              " bs=1 seek=500 conv=notrunc; rm -r " + (scratch / "parts/c/step-000006"));
  const Outcome damaged = train("parts", " --set checkpoint.resume=auto");
  EXPECT_EQ(damaged.exit_code, 5) << damaged.err;
  EXPECT_NE(damaged.err.find("hash"), std::string::npos);
}

#ifdef GANTRY_MPIRUN
TEST(Program, MpiGivesTheSameLossesToTheLastBit) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml",
      config_text(scratch,
                  "parallel: {pipeline: 2, tensor: 2}\nschedule: {microbatches: 2}\ncomm: {threads_per_rank: 1}\n"));
  const Outcome threads = run_program(gantry_program() + " train " + config + " --set output=" + (scratch / "threads"));
  ASSERT_EQ(threads.exit_code, 0) << threads.err;
  const Outcome mpi = run_program(std::string(GANTRY_MPIRUN) + " -n 4 " + gantry_program() + " train " + config +
                                  " --set output=" + (scratch / "mpi"));
  ASSERT_EQ(mpi.exit_code, 0) << mpi.err;
  EXPECT_NE(mpi.out.find("over mpi"), std::string::npos) << mpi.out;
  EXPECT_EQ(losses_of(read_file(scratch / "mpi/metrics.jsonl")),
            losses_of(read_file(scratch / "threads/metrics.jsonl")));
  EXPECT_FALSE(losses_of(read_file(scratch / "mpi/metrics.jsonl")).empty());
}

TEST(Program, AFailingRankEndsMpirunWithItsCode) {
  const ScratchFolder scratch;
  const std::string config = scratch.write("train.yaml", config_text(scratch, "parallel: {pipeline: 2}\n"));
  const Outcome run = run_program(
      std::string(GANTRY_MPIRUN) + " -n 2 " + gantry_program() + " train " + config + " --set optimizer.lr=1.0e+30",
      60);
  EXPECT_EQ(run.exit_code, 8) << run.err;
  const Outcome mesh = run_program(std::string(GANTRY_MPIRUN) + " -n 3 " + gantry_program() + " train " + config, 60);
  EXPECT_EQ(mesh.exit_code, 3) << mesh.err;
  EXPECT_NE(mesh.err.find("pipeline 2 * tensor 1 = 2 does not divide the 3 ranks of this job"), std::string::npos)
      << mesh.err;
}
#endif

}  // namespace
}  // namespace gantry::testing
