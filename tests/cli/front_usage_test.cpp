// Misspelt words on the command line: exit code 2, one line, and the word that was meant.
#include <algorithm>
#include <gtest/gtest.h>

#include "program.h"

namespace gantry::testing {
namespace {

struct Misspelt {
  const char* arguments;
  const char* line;  // after "error: "
};

const Misspelt kMisspelt[] = {
    {"trian",
     "gantry: 'trian' is not a command; expected one of train, launch, forward, compare, generate, chat, checkpoint, "
     "schedule, "
     "data, "
     "init, completion, manual, report, plan, config, models, doctor; did you mean 'train'?"},
    {"help trian",
     "gantry: 'trian' is not a command; expected one of train, launch, forward, compare, generate, chat, checkpoint, "
     "schedule, "
     "data, "
     "init, completion, manual, report, plan, config, models, doctor; did you mean 'train'?"},
    {"checkpoint exprot a b",
     "gantry checkpoint: 'exprot' is not a command; expected one of export, import, reshard, merge, upcycle, inspect, "
     "verify, diff; did you mean 'export'?"},
    {"schedule shwo 1f1b -p 2 -m 2",
     "gantry schedule: 'shwo' is not a command; expected one of show, check, simulate, draw; did you mean 'show'?"},
    {"help schedule simulat",
     "gantry schedule: 'simulat' is not a command; expected one of show, check, simulate, draw; did you mean "
     "'simulate'?"},
    {"help config x", "gantry config: 'x' is not a command; see gantry config --help"},
    {"--hlep", "gantry: '--hlep' is not a flag; did you mean '--help'?"},
    {"train --sett", "gantry train: '--sett' is not a flag; did you mean '--set'?"},
    {"train x.yaml --sett a.b=c", "gantry train: '--sett' is not a flag; did you mean '--set'?"},
    {"train x.yaml -set a.b=c", "gantry train: '-set' is not a flag; did you mean '--set'?"},
    {"train x.yaml --sampel=a", "gantry train: '--sampel' is not a flag; did you mean '--sample'?"},
    {"train x.yaml y.yaml", "gantry train: 'y.yaml' is one argument too many; see gantry train --help"},
    {"train --", "gantry train: config is required; see gantry train --help"},
    {"forward --modle x", "gantry forward: '--modle' is not a flag; did you mean '--model'?"},
    {"forward --model a --batch b --output c --grad d",
     "gantry forward: '--grad' is not a flag; did you mean '--grads'?"},
    {"checkpoint export a b --fore",
     "gantry checkpoint export: '--fore' is not a flag; see gantry checkpoint export --help"},
    {"schedule draw 1f1b -p 2 -m 2 --fromat svg",
     "gantry schedule draw: '--fromat' is not a flag; did you mean '--format'?"},
    {"schedule draw 1f1b",
     "gantry schedule: -p and -m are missing; expected the numbers of pipeline ranks and of microbatches; add -p 4 -m "
     "8"},
    {"schedule draw 1f1b -m 8", "gantry schedule: -p is missing; expected the number of pipeline ranks; add -p 4"},
    {"schedule show 1f1b -p 2 --microbatch=2",
     "gantry schedule show: '--microbatch' is not a flag; did you mean '--microbatches'?"},
    {"config x.yaml --jsn", "gantry config: '--jsn' is not a flag; did you mean '--json'?"},
    {"data biuld --tokenizer byte --output a b",
     "gantry data: 'biuld' is not a command; expected one of build, encode, decode, train-tokenizer, show; did you "
     "mean 'build'?"},
    {"data build --tokeniser byte --output a b",
     "gantry data build: '--tokeniser' is not a flag; did you mean '--tokenizer'?"},
    {"data build --output a b", "gantry data build: --tokenizer is required; see gantry data build --help"},
    {"report a --ouput b", "gantry report: '--ouput' is not a flag; did you mean '--output'?"},
    {"report", "gantry report: folder is required; see gantry report --help"},
    {"generate --model a --prompt b --seed -1",
     "gantry generate: --seed: the value is -1; expected a number from 0 on; see gantry generate --help"},
    {"checkpoint upcycle a b --experts 0 --top-k 1",
     "gantry checkpoint upcycle: --experts: the value is 0; expected a number above 0; see gantry checkpoint upcycle "
     "--help"},
    {"doctor --unheard-of", "gantry doctor: '--unheard-of' is not a flag; see gantry doctor --help"},
};

TEST(Usage, MisspeltWordsGetTheNearestOne) {
  for (const auto& [arguments, line] : kMisspelt) {
    const Outcome run = run_program(gantry_program() + " " + arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments;
    EXPECT_EQ(run.err, std::string("error: ") + line + "\n") << arguments;
    EXPECT_EQ(run.out, "") << arguments;
  }
}

TEST(Usage, HelpDescendsIntoCommands) {
  EXPECT_EQ(run_program(gantry_program() + " help schedule draw").out,
            run_program(gantry_program() + " schedule draw --help").out);
  EXPECT_EQ(run_program(gantry_program() + " help").out, run_program(gantry_program() + " --help").out);
}

}  // namespace
}  // namespace gantry::testing
