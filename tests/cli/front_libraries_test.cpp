// Libraries with a custom model family, in every command that builds or names a model: examples/plugin_policy.
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;

const std::string kLibrary = std::string(GANTRY_BUILD_DIR) + "/examples/libnext_token.so";

// A run of one step whose library is a copy in the scratch folder; leaves the checkpoint "saved".
Outcome train_own_family(const ScratchFolder& scratch) {
  fs::copy(kLibrary, scratch / "own.so");
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: next_token, config: {{vocab_size: 1000, width: 8, layers: 2}}}}\n"
                  "data: {{format: text, path: \"{}\", tokenizer: bytes, sequence_length: 8, batch_size: 2}}\n"
                  "train: {{steps: 1}}\ncheckpoint: {{path: \"{}\"}}\nlibraries: [\"{}\"]\n",
                  scratch.write("text.txt", std::string(200, 'a')), scratch / "saved", scratch / "own.so"));
  return run_program(gantry_program() + " train " + config);
}

TEST(Libraries, WorkInEveryCommandThatNamesAModel) {
  ASSERT_TRUE(fs::exists(kLibrary)) << "build the examples, example_plugin_policy among them";
  const ScratchFolder scratch;
  const Outcome trained = train_own_family(scratch);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto call = [&](const std::string& arguments) { return run_program(gantry_program() + " " + arguments); };
  const std::string saved = scratch / "saved", exported = scratch / "exported",
                    set = " --set 'libraries=[" + kLibrary + "]'";
  // The run's own library is loaded without being named.
  const Outcome by_itself = call("checkpoint export " + saved + " " + exported);
  EXPECT_EQ(by_itself.exit_code, 0) << by_itself.err;

  // If the library has been removed, another file can be given.
  fs::remove(scratch / "own.so");
  const Outcome gone = call("checkpoint export " + saved + " " + (scratch / "again"));
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_NE(gone.err.find("own.so"), std::string::npos) << gone.err;
  const Outcome named = call("checkpoint export --library " + kLibrary + " " + saved + " " + (scratch / "again"));
  EXPECT_EQ(named.exit_code, 0) << named.err;
  const Outcome resharded =
      call("checkpoint reshard " + saved + " " + (scratch / "two") + set + " --set parallel.tensor=2");
  EXPECT_EQ(resharded.exit_code, 0) << resharded.err;
  const Outcome compared = call("checkpoint diff --library " + kLibrary + " " + saved + " " + exported);
  EXPECT_EQ(compared.exit_code, 0) << compared.err;

  // A directory of the family is read by its model_type.
  const std::string batch = std::string(GANTRY_SOURCE_DIR) + "/tests/golden/gpt2/batch.safetensors";
  const std::string forward = "forward --model " + exported + " --batch " + batch + " --output " + (scratch / "o");
  EXPECT_EQ(call(forward).exit_code, 3);
  const Outcome with_library = call(forward + set);
  EXPECT_EQ(with_library.exit_code, 0) << with_library.err;
  EXPECT_TRUE(fs::exists(scratch / "o"));
  const Outcome imported = call("checkpoint import " + exported + " " + (scratch / "imported") + set);
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  const Outcome generated = call("generate --model " + exported + " --tokens 1,2 --max-new-tokens 2" + set);
  EXPECT_EQ(generated.exit_code, 0) << generated.err;
}

TEST(Libraries, MayBeListedTwice) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml",
      fmt::format("model: {{policy: next_token, config: {{vocab_size: 1000, width: 8, layers: 2}}}}\n"
                  "data: {{format: text, path: \"{}\", tokenizer: bytes, sequence_length: 8, batch_size: "
                  "2}}\ntrain: {{steps: 1}}\nlibraries: [\"{}\", \"{}\", \"{}\"]\n",
                  scratch.write("text.txt", std::string(200, 'a')), kLibrary, kLibrary, scratch / "link.so"));
  fs::create_symlink(kLibrary, scratch / "link.so");
  for (const char* command : {" train ", " config "}) {
    const Outcome run = run_program(gantry_program() + command + config);
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
}

TEST(Libraries, DescribeTheirModelsForConfigAndPlan) {
  const ScratchFolder scratch;
  const std::string config = scratch.write(
      "train.yaml", fmt::format("model: {{policy: next_token, config: {{vocab_size: 1000, width: 8, layers: 6}}}}\n"
                                "parallel: {{pipeline: 2}}\nschedule: {{layers: balanced}}\n"
                                "data: {{format: text, path: x, sequence_length: 8, batch_size: 8}}\n"
                                "libraries: [\"{}\"]\n",
                                kLibrary));
  const auto call = [&](const std::string& arguments) { return run_program(gantry_program() + " " + arguments); };
  // A block has 512 weights, and the output layer 8,000.
  const Outcome shown = call("config " + config);
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_NE(shown.out.find("stages of 6 layers:\n  stage 0: layers 0 to 5 (6), 27.7% of the work\n"
                           "  stage 1: no layers, 72.3% of the work"),
            std::string::npos)
      << shown.out;

  const Outcome stated = call("plan estimate " + config + " --cluster h100_80g --json");
  ASSERT_EQ(stated.exit_code, 0) << stated.err;
  const Outcome planned = call("plan " + config + " --cluster h100_80g --ranks 8");
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.out.find("sequence parallel"), std::string::npos) << planned.out;
  const Outcome refused = call("plan estimate " + config +
                               " --cluster h100_80g --set parallel.tensor=2 --set parallel.sequence_parallel=true");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("the policy has no rules for the layers like blocks.0 with parallel.sequence_parallel"),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace gantry::testing
