// Reference cases of families through `gantry forward`: logits, loss, gradients and outputs of routers are those of
// transformers. models/families runs every case in several layouts. Here every third case runs in one layout, and all
// cases in every layout under GANTRY_LONG=1.
#include <algorithm>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/tensors/libtorch.h"
#include "grid.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

const std::string kFamilyCases = GANTRY_SOURCE_DIR "/tests/golden/families";

std::string flags_of(const std::string& folder, const FamilyLayout& how) {
  return fmt::format(
      "--set parallel.tensor={} --set parallel.pipeline={} --set parallel.context={} --set parallel.expert={} "
      "--set parallel.sequence_parallel={} --set precision={}",
      how.layout.tensor, how.layout.pipeline, how.layout.context, how.layout.expert, how.sequence_parallel,
      precision_of_case(folder));
}

Outcome forward_in(const std::string& folder, const FamilyLayout& how, const ScratchFolder& scratch, bool trains) {
  write_safetensors(scratch / "batch.safetensors", family_batch(folder));
  return run_program(fmt::format("{} forward --model {} --batch {} --output {} {} {}", gantry_program(), folder,
                                 scratch / "batch.safetensors", scratch / "out.safetensors",
                                 trains ? "--grads " + (scratch / "grads.safetensors") : "", flags_of(folder, how)));
}

void expect_program(const std::string& folder, const FamilyLayout& how) {
  const ScratchFolder scratch;
  const bool is_split = how.layout.pipeline > 1 || how.layout.context > 1;
  FamilyOutcome outcome{.trained = !(is_split && has_joint_loss(folder))};
  const Outcome run = forward_in(folder, how, scratch, outcome.trained);
  ASSERT_EQ(run.exit_code, 0) << folder << " " << describe(how) << run.err;
  outcome.outputs = read_safetensors(scratch / "out.safetensors");
  if (outcome.trained) outcome.gradients = read_safetensors(scratch / "grads.safetensors");
  outcome.loss = outcome.ce_loss = outcome.outputs.at("loss").item<double>();
  if (outcome.outputs.contains("ce_loss")) outcome.ce_loss = outcome.outputs.at("ce_loss").item<double>();
  expect_family(folder, outcome, folder + " " + describe(how));
  if (outcome.outputs.contains("aux_loss")) expect_routers(folder, outcome.outputs, folder + " " + describe(how));
}

TEST(FamilyPrograms, WriteTransformersNumbers) {
  std::size_t index = 0;
  for (const std::string& folder : turn_of(0, 3, family_cases(kFamilyCases))) {
    const auto layouts = family_layouts(folder);
    for (const FamilyLayout& how : turn_of(index++, layouts.size(), layouts)) expect_program(folder, how);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// One rank of experts is above. With stages or shared sequences there are no gradients of the joint loss.
TEST(FamilyProgramsOfExperts, WriteTransformersNumbers) {
  const std::vector<Layout> layouts = {
      {.tensor = 2, .expert = 2}, {.tensor = 4, .expert = 4}, {.pipeline = 2, .context = 2, .expert = 2}};
  std::size_t index = 0;
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "dots1", "glm4_moe", "gpt_oss",
                             "granitemoe", "minimax_m2", "olmoe"})
    for (const Layout& layout : turn_of(index++, layouts.size(), layouts)) {
      expect_program(kFamilyCases + "/" + family, {layout, /*sequence_parallel=*/layout.tensor > 1});
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(FamilyProgramsOfChoices, ShareNoSequences) {
  std::vector<std::string> whole;
  std::ranges::copy_if(family_cases(kFamilyCases), std::back_inserter(whole), shares_no_sequence);
  for (const std::string& folder : turn_of(0, 4, whole)) {
    const ScratchFolder scratch;
    const Outcome run = forward_in(folder, {{.context = 2}}, scratch, /*trains=*/false);
    EXPECT_EQ(run.exit_code, 3) << folder << run.err;
    EXPECT_THAT(run.err, HasSubstr("full sequences")) << folder;
  }
}

}  // namespace
}  // namespace gantry::testing
