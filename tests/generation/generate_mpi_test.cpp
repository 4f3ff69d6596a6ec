// ranks: 4, also over tcp
// Generation over MPI.
#include "generation_case.h"

namespace gantry::testing {
namespace {

TEST(GenerateOverMpi, GivesTheTokensOfTransformers) {
  for (const Layout& layout :
       {Layout{.pipeline = 4}, Layout{.pipeline = 2, .tensor = 2}, Layout{.data = 2, .tensor = 2}})
    expect_reference("llama_gqa3", layout);
}

}  // namespace
}  // namespace gantry::testing
