// CLIP and SigLIP: every layout trains as one rank in float64, with features of all replicas in the loss.
#include "gantry/models/vision/contrastive.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/models/model_family.h"
#include "gantry/tensors/deferred_init.h"
#include "gantry/tensors/libtorch.h"
#include "model_case.h"

namespace gantry::testing {
namespace {

ModelCase contrast_case(const std::string& family) {
  return {.family = family, .layers = 2, .heads = 3, .vocabulary = 31, .tokens = 7, .batches = {6, 5}};
}

std::vector<Parallelism> contrast_layouts() {
  return {{.layout = {.tensor = 2}},
          {.layout = {.tensor = 3}, .recompute = "selective"},
          {.layout = {.tensor = 2}, .sequence_parallel = true, .recompute = "full"},
          {.layout = {.data = 2}},
          {.layout = {.data = 3}, .recompute = "parts", .zero = 1},
          {.layout = {.data = 2}, .zero = 2},
          {.layout = {.data = 2}, .zero = 3},
          {.layout = {.data = 2, .tensor = 2}, .sequence_parallel = true}};
}

TEST(ContrastiveGrid, Clip) { expect_layouts_equal(contrast_case("clip"), contrast_layouts()); }

TEST(ContrastiveGrid, Siglip) { expect_layouts_equal(contrast_case("siglip"), contrast_layouts()); }

// A last batch of fewer samples than replicas.
TEST(ContrastiveGrid, AReplicaWithoutSamples) {
  for (const char* family : {"clip", "siglip"}) {
    ModelCase what = contrast_case(family);
    what.batches = {4, 2};
    expect_layouts_equal(what, {{.layout = {.data = 3}}});
  }
}

// The text ends at its first end token; older files have the largest token there.
TEST(Contrastive, PoolsAtTheEndToken) {
  for (const std::int64_t end : {30, 2}) {
    nlohmann::json keys = nlohmann::json::parse(config_keys(contrast_case("clip")));
    keys["text_config"]["eos_token_id"] = end;
    const auto model = std::dynamic_pointer_cast<models::ContrastiveImpl>(models::families().at("clip").build(keys));
    set_dtype(*model, torch::kFloat64);
    const torch::Tensor ids = torch::tensor({{5, 6, 30, 7, 8}, {5, 6, 30, 9, 30}});
    const torch::Tensor text =
        model->forward({{"input_ids", ids}, {"pixel_values", torch::ones({2, 2, 4, 4})}}).at("text_embeds");
    EXPECT_LE((text[0] - text[1]).abs().max().item<double>(), 1e-12) << end;
  }
}

}  // namespace
}  // namespace gantry::testing
