// The files of an earlier run in the output directory are kept when another run writes there. A kill or a
// full disk loses nothing.
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include "../checkpoint/faulty_files.h"
#include "gantry/core/error.h"
#include "gantry/trainer/report/earlier_run.h"
#include "program.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using Fault = FaultyFiles::Fault;

std::string metrics_until(int last, int evaluated = 0) {
  std::string lines;
  for (int step = 1; step <= last; ++step) {
    lines += fmt::format("{{\"step\":{},\"loss\":{}.5}}\n", step, step);
    if (step == evaluated) lines += fmt::format("{{\"step\":{},\"eval_loss\":1.0}}\n", step);
  }
  return lines;
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder)] = read_file(entry.path());
  return files;
}

FileSystem& whole_files() {
  static FaultyFiles files;
  return files;
}

void write_run(const ScratchFolder& run) {
  run.write("metrics.jsonl", metrics_until(4));
  run.write("config.yaml", "former");
  run.write("report.html", "former page");
  fs::create_directory(run / "tensorboard");
  run.write("tensorboard/events", "former events");
}

TEST(EarlierRun, GetsNamesOfItsOwnWithTheFirstFreeNumber) {
  const ScratchFolder run;
  EXPECT_EQ(keep_earlier_run(run.path()), "") << "nothing is there";
  run.write("metrics.jsonl", "");
  EXPECT_EQ(keep_earlier_run(run.path()), "") << "no line is there";
  write_run(run);
  run.write("config.1.yaml", "of a run before");
  EXPECT_EQ(keep_earlier_run(run.path()), run / "metrics.2.jsonl");
  EXPECT_EQ(files_of(run.path()), (std::map<std::string, std::string>{{"config.1.yaml", "of a run before"},
                                                                      {"config.2.yaml", "former"},
                                                                      {"metrics.2.jsonl", metrics_until(4)},
                                                                      {"report.2.html", "former page"},
                                                                      {"tensorboard.2/events", "former events"}}));
}

// Runs `work` in a process that is killed at its call number `at`.
template <class Work>
void killed_at(int at, Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    FaultyFiles files;
    files.fault = Fault::kKill;
    files.at = at;
    work(files);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

TEST(EarlierRun, AKillOrAFullDiskWhileItIsPutAsideLosesNothing) {
  for (const Fault fault : {Fault::kKill, Fault::kFail})
    for (int at = 0; at < 10; ++at) {
      SCOPED_TRACE(at);
      const ScratchFolder run;
      write_run(run);
      if (fault == Fault::kKill) {
        killed_at(at, [&](FileSystem& files) { keep_earlier_run(run.path(), files); });
      } else {
        FaultyFiles files;
        files.fault = fault;
        files.at = at;
        try {
          keep_earlier_run(run.path(), files);
        } catch (const ResourceError&) {
        }
      }
      keep_earlier_run(run.path(), whole_files());  // by the next run
      std::multiset<std::string> texts;
      for (const auto& [name, text] : files_of(run.path())) texts.insert(text);
      EXPECT_EQ(texts, (std::multiset<std::string>{metrics_until(4), "former", "former events", "former page"}));
      EXPECT_FALSE(fs::exists(run / "metrics.jsonl"));
    }
}

TEST(KeptMetrics, LinesOfLaterStepsArePutAside) {
  const ScratchFolder run;
  EXPECT_EQ(keep_metrics_until(run.path(), 2).kept_as, "") << "nothing is there";
  run.write("metrics.jsonl", metrics_until(5) + "{\"step\":6,\"lo");  // killed within a line
  EXPECT_EQ(keep_metrics_until(run.path(), 3).kept_as, run / "metrics.1.jsonl");
  EXPECT_EQ(read_file(run / "metrics.jsonl"), metrics_until(3));
  EXPECT_EQ(metrics_until(3) + read_file(run / "metrics.1.jsonl"), metrics_until(5));
  EXPECT_EQ(keep_metrics_until(run.path(), 3).kept_as, "");
  run.write("metrics.jsonl", metrics_until(3) + "{\"step\":4,");
  EXPECT_EQ(keep_metrics_until(run.path(), 3).kept_as, "") << "half a line is none";
  EXPECT_EQ(read_file(run / "metrics.jsonl"), metrics_until(3));
  EXPECT_EQ(files_of(run.path()).size(), 2u);
}

TEST(KeptMetrics, SayWhetherAnEvaluationIsToCome) {
  const auto owes = [](const std::string& lines) {
    const ScratchFolder run;
    run.write("metrics.jsonl", lines);
    return keep_metrics_until(run.path(), 3).owes_evaluation;
  };
  EXPECT_TRUE(owes(metrics_until(3)));
  EXPECT_TRUE(owes(metrics_until(5, 2)));
  EXPECT_FALSE(owes(metrics_until(3, 3)));
  EXPECT_FALSE(owes(metrics_until(2))) << "another folder's steps";
}

TEST(KeptMetrics, AKillOrAFullDiskLosesNoLine) {
  for (const Fault fault : {Fault::kKill, Fault::kFail})
    for (int at = 0; at < 12; ++at) {
      SCOPED_TRACE(at);
      const ScratchFolder run;
      run.write("metrics.jsonl", metrics_until(5));
      if (fault == Fault::kKill) {
        killed_at(at, [&](FileSystem& files) { keep_metrics_until(run.path(), 3, files); });
      } else {
        FaultyFiles files;
        files.fault = fault;
        files.at = at;
        files.from_there_on = true;
        try {
          keep_metrics_until(run.path(), 3, files);
        } catch (const ResourceError&) {
        }
      }
      const std::string now = read_file(run / "metrics.jsonl");
      EXPECT_TRUE(now == metrics_until(5) || now + read_file(run / "metrics.1.jsonl") == metrics_until(5)) << now;
      keep_metrics_until(run.path(), 3, whole_files());
      EXPECT_EQ(read_file(run / "metrics.jsonl"), metrics_until(3));
      EXPECT_EQ(metrics_until(3) + read_file(run / "metrics.1.jsonl"), metrics_until(5));
    }
}

}  // namespace
}  // namespace gantry::testing
