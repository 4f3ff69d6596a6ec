// prose_check.py finds unclear wording.
#include <filesystem>
#include <fmt/format.h>

#include "documents.h"

namespace gantry::testing {
namespace {

class ProseCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    if (run_program("python3 --version").exit_code != 0) GTEST_SKIP() << "needs python3";
    std::filesystem::create_directories(scratch_ / "docs");
  }

  Outcome check(const std::string& arguments) const {
    return run_program(fmt::format("cd {} && python3 {}/tests/docs/prose_check.py --root . {}", scratch_.path(),
                                   kRoot.string(), arguments));
  }

  ScratchFolder scratch_;
};

TEST_F(ProseCheck, ReportsTheRuleAndTheLine) {
  scratch_.write("docs/page.md", "# Title\n\nThe loader reads files.\n\nWho wants a loop writes it.\n");
  const Outcome found = check("docs/page.md");
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_EQ(found.out, "docs/page.md:5: starts-who: Who wants a loop writes it.\n");
  scratch_.write("docs/page.md", "# Title\n\nThe loader reads files. To write your own loop, call `step()`.\n");
  EXPECT_EQ(check("docs/page.md").exit_code, 0);
}

TEST_F(ProseCheck, ReadsCommentsTextsAndNames) {
  scratch_.write("docs/a.cpp", "// Where it fails, it stops.\nint given_up = fail(\"is not read by a rank\");\n");
  const Outcome found = check("docs/a.cpp");
  for (const char* rule : {"a.cpp:1: starts-where", "a.cpp:2: verb-first", "a.cpp:2: identifier: given_up: aborted"})
    EXPECT_NE(found.out.find(rule), std::string::npos) << rule << "\n" << found.out << found.err;
}

TEST_F(ProseCheck, ExceptionsAreNotReported) {
  scratch_.write("docs/page.md", "Nobody reads it.\n");
  scratch_.write("exceptions.tsv", "docs/*\tnobody\tNobody reads\ta quotation\n");
  EXPECT_EQ(check("docs/page.md").exit_code, 1);
  EXPECT_EQ(check("--exceptions exceptions.tsv docs/page.md").exit_code, 0);
}

}  // namespace
}  // namespace gantry::testing
