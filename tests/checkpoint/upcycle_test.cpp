// A model that is upcycled to experts has the logits of the dense model before its first step, in any layout.
#include "gantry/checkpoint/upcycle.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "family_case.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

std::string family_folder(const std::string& family) { return GANTRY_SOURCE_DIR "/tests/golden/families/" + family; }

std::string upcycled(const ScratchFolder& scratch, const std::string& family, const UpcycleOptions& options) {
  const std::string made = scratch / "upcycled";
  upcycle(family_folder(family), made, options);
  std::filesystem::copy(family_folder(family) + "/inputs.safetensors", made + "/inputs.safetensors");
  return made;
}

double difference(const std::string& dense, const std::string& made, const Layout& layout = {}) {
  const torch::Tensor expected = run_family(dense, {}, false, "float64").outputs.at("logits"),
                      logits = run_family(made, layout, false, "float64").outputs.at("logits");
  return (logits - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

TEST(Upcycle, HasTheLogitsOfTheDenseModel) {
  const std::tuple<const char*, UpcycleOptions> cases[] = {{"mistral", {.experts = 4, .used = 2}},
                                                           {"mistral", {.experts = 8, .used = 4, .granularity = 2}},
                                                           {"mistral", {.experts = 9, .used = 3, .granularity = 3}},
                                                           {"llama_linear", {.experts = 3, .used = 1}},
                                                           {"qwen3", {.experts = 6, .used = 3, .granularity = 3}}};
  for (const auto& [family, options] : cases) {
    SCOPED_TRACE(std::string(family) + " granularity " + std::to_string(options.granularity));
    const ScratchFolder scratch;
    // With granularity 3, down projections are multiplied by 3 and rounded to the float32 of the file.
    const double tolerance = options.granularity == 3 ? 1e-6 : 1e-13;
    EXPECT_LE(difference(family_folder(family), upcycled(scratch, family, options)), tolerance);
  }
}

TEST(Upcycle, TheSameOverRanks) {
  const ScratchFolder scratch;
  const std::string made = upcycled(scratch, "mistral", {.experts = 6, .used = 4, .granularity = 2});
  EXPECT_LE(difference(family_folder("mistral"), made, {.data = 3, .expert = 3}), 1e-13);
}

// Slices of a copy share a row of the router. Different copies have different rows, which depend on the seed.
TEST(Upcycle, RoutersChooseFullCopies) {
  torch::Tensor rows[2];
  for (const int seed : {1, 2}) {
    const ScratchFolder scratch;
    const std::string made = scratch / "m";
    upcycle(family_folder("mistral"), made,
            {.experts = 8, .used = 2, .granularity = 2, .seed = static_cast<std::uint64_t>(seed)});
    rows[seed - 1] = read_safetensors(made + "/model.safetensors").at("model.layers.1.block_sparse_moe.gate.weight");
  }
  ASSERT_EQ(rows[0].sizes(), (std::vector<std::int64_t>{8, 24}));
  for (int expert = 0; expert < 8; expert += 2) {
    EXPECT_TRUE(torch::equal(rows[0][expert], rows[0][expert + 1]));
    if (expert > 0) EXPECT_FALSE(torch::equal(rows[0][expert - 1], rows[0][expert]));
  }
  EXPECT_FALSE(torch::equal(rows[0], rows[1]));
  EXPECT_NEAR(rows[0].std().item<double>(), 0.02, 0.005) << "initializer_range";
}

TEST(Upcycle, RejectsPartialCopies) {
  const ScratchFolder scratch;
  const auto refusal = [&](const std::string& family, const UpcycleOptions& options) -> std::string {
    try {
      upcycle(family_folder(family), scratch / "x", options);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("mistral", {.experts = 8, .used = 3, .granularity = 2}),
              HasSubstr("--top-k: the value is 3 with granularity 2"));
  EXPECT_THAT(refusal("mistral", {.experts = 7, .used = 2, .granularity = 2}),
              HasSubstr("--experts: the value is 7 with granularity 2"));
  EXPECT_THAT(refusal("mistral", {.experts = 4, .used = 5}),
              HasSubstr("--top-k: the value is 5, but there are 4 experts"));
  EXPECT_THAT(refusal("mistral", {.experts = 10, .used = 5, .granularity = 5}),
              HasSubstr("--granularity: the value is 5, which does not divide intermediate_size 36"));
  EXPECT_THAT(refusal("gemma", {.experts = 4, .used = 2}), HasSubstr("the model family is gemma"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "x"));
}

}  // namespace
}  // namespace gantry::testing
