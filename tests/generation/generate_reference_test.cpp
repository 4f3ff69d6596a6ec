// The tokens of Hugging Face's generate(), in every layout.
#include "generation_case.h"

namespace gantry::testing {
namespace {

void expect_in(const std::string& model, const std::vector<Layout>& layouts) {
  for (const auto& layout : layouts_to_run(layouts)) {
    expect_reference(model, layout);
    if (::testing::Test::HasFailure()) return;
  }
}

// tp 1, 2, 3 x pp 1 to `stages`, and two replicas.
std::vector<Layout> all_layouts(int stages) {
  std::vector<Layout> layouts = {{.data = 2}, {.pipeline = 2, .data = 2, .tensor = 2}};
  for (int tensor = 1; tensor <= 3; ++tensor)
    for (int pipeline = 1; pipeline <= stages; ++pipeline) layouts.push_back({.pipeline = pipeline, .tensor = tensor});
  return layouts;
}

std::vector<Layout> layouts_of(int stages) {
  if (is_long_form()) return all_layouts(stages);
  std::vector<Layout> layouts = turn_of<Layout>(
      next_turn("layouts"), 2, {{.tensor = 2}, {.pipeline = 2}, {.pipeline = 3, .tensor = 2}, {.tensor = 3}});
  layouts.push_back({});
  return layouts;
}

TEST(GenerateAsTransformers, Gpt2) {
  expect_in("gpt2", layouts_of(4));
  expect_in("gpt2", {{.pipeline = 4}, {.pipeline = 2, .tensor = 3}, {.pipeline = 4, .tensor = 2}, {.data = 2}});
}
TEST(GenerateAsTransformers, Llama) {
  expect_in("llama", layouts_of(4));
  expect_in("llama", {{.pipeline = 4, .tensor = 3}});
}
TEST(GenerateAsTransformers, LlamaWithOneKeyHeadAndTiedEmbeddings) { expect_in("llama_tied_gqa1", layouts_of(5)); }
TEST(GenerateAsTransformers, UntiedGpt2OfThreeHeads) { expect_in("gpt2_untied", layouts_of(3)); }
TEST(GenerateAsTransformers, LlamaWithSharedKeyHeadsBiasesAndScaledRotation) { expect_in("llama_gqa3", layouts_of(4)); }

// T5's encoder reads prompts of unequal lengths.
TEST(GenerateAsTransformers, T5) {
  for (const char* model : {"t5", "t5_gated"})
    expect_in(model, is_long_form()
                         ? all_layouts(5)
                         : std::vector<Layout>{{}, {.tensor = 3}, {.pipeline = 3, .tensor = 2}, {.context = 2}});
}

}  // namespace
}  // namespace gantry::testing
