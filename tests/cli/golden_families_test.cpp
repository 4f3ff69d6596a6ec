// Every reference case of a family through `gantry forward`, each in another layout: logits, loss and gradients are
// those of transformers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <torch/torch.h>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "program.h"

namespace gantry::testing {
namespace {

// transformers' balancing loss is joint over all layers: one stage.
bool has_joint_loss(const std::string& folder) {
  return nlohmann::json::parse(read_file(folder + "/config.json")).value("output_router_logits", false);
}

class FamilyPrograms : public ::testing::TestWithParam<int> {};  // every third case, from this one on
INSTANTIATE_TEST_SUITE_P(Cases, FamilyPrograms, ::testing::Range(0, 3));

TEST_P(FamilyPrograms, WriteTransformersNumbers) {
  const auto folders = family_cases(GANTRY_SOURCE_DIR "/tests/golden/families");
  for (std::size_t i = static_cast<std::size_t>(GetParam()); i < folders.size(); i += 3) {
    const ScratchFolder scratch;
    const std::size_t tensor = 1 + i % 3, pipeline = has_joint_loss(folders[i]) ? 1 : 1 + i / 3 % 2;
    const std::string layout =
        fmt::format("--set parallel.tensor={} --set parallel.pipeline={} --set parallel.sequence_parallel={}", tensor,
                    pipeline, i % 4 < 2);
    write_safetensors(scratch / "batch.safetensors", family_batch(folders[i]));
    const Outcome run = run_program(fmt::format("{} forward --model {} --batch {} --output {} --grads {} {}",
                                                gantry_program(), folders[i], scratch / "batch.safetensors",
                                                scratch / "out.safetensors", scratch / "grads.safetensors", layout));
    ASSERT_EQ(run.exit_code, 0) << folders[i] << run.err;
    FamilyOutcome outcome{.outputs = read_safetensors(scratch / "out.safetensors"),
                          .gradients = read_safetensors(scratch / "grads.safetensors")};
    outcome.loss = outcome.ce_loss = outcome.outputs.at("loss").item<double>();
    if (outcome.outputs.contains("ce_loss")) outcome.ce_loss = outcome.outputs.at("ce_loss").item<double>();
    expect_family(folders[i], outcome, folders[i] + " " + layout);
  }
}

}  // namespace
}  // namespace gantry::testing
