// run_main() prints an exception that is thrown outside of launch() as one line, and returns its exit code.
#include "gantry/booster/run_main.h"

#include <gtest/gtest.h>

#include "gantry/core/error.h"
#include "program.h"

namespace gantry {
namespace {

struct MainOutcome {
  int code;
  std::string err;
};

MainOutcome call_main(std::vector<std::string> arguments, const std::function<int(Config)>& body) {
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  const int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  ::testing::internal::CaptureStderr();
  const int code = run_main(argc, argv.data(), body);
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(RunMain, PrintsWhatIsThrownOutsideOfLaunch) {
  const testing::ScratchFolder scratch;
  const std::string good = scratch.write("good.yaml", "model: {policy: gpt2}\n");
  const std::string bad = scratch.write("bad.yaml", "model: {policy: gpt2}\nparalel: {tensor: 2}\n");
  const std::string lost = scratch.write("lost.yaml", "model: {policy: gpt2}\nlibraries: [none.so]\n");
  const auto nothing = [](const Config&) { return 0; };

  const MainOutcome none = call_main({"bin/mine"}, nothing);
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.err, "error: mine: no configuration was passed; expected mine CONFIG.yaml [KEY=VALUE...]; pass one\n");
  const MainOutcome wrong = call_main({"mine", bad}, nothing);
  EXPECT_EQ(wrong.code, 3);
  EXPECT_EQ(wrong.err.find("error: " + bad + ":2:1: paralel: unknown key"), 0u) << wrong.err;
  EXPECT_EQ(call_main({"mine", scratch / "absent.yaml"}, nothing).code, 3);
  EXPECT_EQ(call_main({"mine", good, "parallel.tensr=2"}, nothing).code, 3);
  EXPECT_EQ(call_main({"mine", good, "parallel.tensor"}, nothing).code, 2);
  EXPECT_EQ(call_main({"mine", lost}, nothing).code, 3);
  const MainOutcome own = call_main({"mine", good}, [](const Config&) -> int { throw std::runtime_error("of mine"); });
  EXPECT_EQ(own.code, 1);
  EXPECT_EQ(own.err, "error: of mine\n");
}

TEST(RunMain, GivesTheConfigurationAndTheBodysCode) {
  const testing::ScratchFolder scratch;
  const std::string good = scratch.write("good.yaml", "model: {policy: gpt2}\n");
  const MainOutcome outcome =
      call_main({"mine", good, "parallel.tensor=3"}, [](const Config& config) { return config.parallel.tensor + 4; });
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace gantry
