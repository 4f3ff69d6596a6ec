#include "gantry/core/io/python_json.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

TEST(PythonJson, InfinityBecomesAnObject) {
  EXPECT_EQ(without_bare_infinity(R"({"limit": [0.0, Infinity]})"), R"({"limit": [0.0, {"__float__": "Infinity"}]})");
  EXPECT_EQ(without_bare_infinity("[Infinity,Infinity]"), R"([{"__float__": "Infinity"},{"__float__": "Infinity"}])");
}

TEST(PythonJson, StringsAndOtherTextStay) {
  for (const char* text :
       {R"({"name": "Infinity", "a \" Infinity": "\\"})", "[-Infinity]", "[1, 2", R"("Infinity)", "\"\\"})
    EXPECT_EQ(without_bare_infinity(text), text);
}

}  // namespace
}  // namespace gantry
