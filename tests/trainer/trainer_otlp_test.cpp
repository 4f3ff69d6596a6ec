// The spans of train.otlp that the ranks of a run post to a collector, and collectors that accept none.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "gantry/core/base/warning.h"
#include "gantry/trainer/train.h"
#include "logged_run.h"
#include "tiny_collector.h"

namespace gantry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Spans = std::vector<nlohmann::json>;

Config traced_config(const ScratchFolder& scratch, const std::string& url, const std::string& parallel) {
  const std::string text = some_letters(300);
  return Config::parse(fmt::format(
      "model: {{policy: gpt2, config: {{n_embd: 8, n_layer: 2, n_head: 2, vocab_size: 256, n_positions: 8}}}}\n"
      "parallel: {}\nschedule: {{microbatches: 2}}\n"
      "data: {{format: text, path: \"{}\", sequence_length: 8, batch_size: 4}}\n"
      "train: {{steps: 3, otlp: \"{}\"}}\ncheckpoint: {{path: \"{}\", every: 2}}\n",
      parallel, scratch.write("text.txt", text), url, scratch / "checkpoints"));
}

std::int64_t time_of(const nlohmann::json& span, const char* which) {
  return std::stoll(span.at(which).get<std::string>());
}

Spans named(const Spans& spans, const std::string& name, int rank) {
  Spans found;
  for (const auto& span : spans)
    if (span.at("name") == name && span.at("resource").at("gantry.rank") == rank) found.push_back(span);
  return found;
}

// One trace, unique numbers, parents that exist and contain their children.
void expect_one_trace(const Spans& spans) {
  std::map<std::string, nlohmann::json> by_id;
  std::set<std::string> traces;
  int roots = 0;
  for (const auto& span : spans) {
    EXPECT_TRUE(by_id.emplace(span.at("spanId"), span).second);
    traces.insert(span.at("traceId"));
    EXPECT_LE(time_of(span, "startTimeUnixNano"), time_of(span, "endTimeUnixNano"));
  }
  EXPECT_THAT(traces, SizeIs(1));
  for (const auto& span : spans) {
    const std::string parent = span.at("parentSpanId");
    if (parent.empty()) {
      ++roots;
      EXPECT_EQ(span.at("name"), "run");
      continue;
    }
    ASSERT_TRUE(by_id.contains(parent)) << span;
    const bool is_deep = span.at("name") == "action" || span.at("name") == "message";
    EXPECT_EQ(by_id[parent].at("name"), is_deep ? "step" : "run");
    if (span.at("name") == "run") continue;
    EXPECT_EQ(by_id[parent].at("resource").at("gantry.rank"), span.at("resource").at("gantry.rank"));
    EXPECT_GE(time_of(span, "startTimeUnixNano"), time_of(by_id[parent], "startTimeUnixNano")) << span;
    if (span.at("name") != "message")  // a message may be waited for in the next step
      EXPECT_LE(time_of(span, "endTimeUnixNano"), time_of(by_id[parent], "endTimeUnixNano")) << span;
  }
  EXPECT_EQ(roots, 1);
}

std::multiset<std::string> actions_of(const Spans& spans, int rank, const std::string& step) {
  std::multiset<std::string> actions;
  for (const auto& span : named(spans, "action", rank)) {
    const auto& values = span.at("values");
    if (span.at("parentSpanId") == step)
      actions.insert(fmt::format("{}{}{}", values.at("gantry.stage").get<int>(),
                                 values.at("gantry.kind").get<std::string>(), values.value("gantry.microbatch", -1)));
  }
  return actions;
}

TEST(TrainerOtlp, RanksPostTheirSpans) {
  const ScratchFolder scratch;
  TinyCollector collector;
  std::vector<double> losses;
  ASSERT_EQ(train(traced_config(scratch, collector.url(), "{pipeline: 2}"),
                  [&](Trainer& trainer) {
                    if (trainer.world().is_main())
                      trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back(step.loss); }});
                    trainer.run();
                  }),
            0);
  const Spans spans = collector.spans();
  expect_one_trace(spans);
  for (int rank = 0; rank < 2; ++rank) {
    ASSERT_THAT(named(spans, "run", rank), SizeIs(1));
    const auto resource = named(spans, "run", rank)[0].at("resource");
    EXPECT_EQ(resource.at("service.name"), "gantry");
    EXPECT_EQ(resource.at("gantry.axis.pp"), rank);
    EXPECT_NE(resource.at("host.name"), "");
    const Spans steps = named(spans, "step", rank);
    ASSERT_THAT(steps, SizeIs(3));
    for (int i = 0; i < 3; ++i) {
      const auto& values = steps[i].at("values");
      EXPECT_EQ(values.at("gantry.step"), i + 1);
      EXPECT_EQ(values.at("gantry.loss"), losses.at(i));
      EXPECT_EQ(values.at("gantry.tokens"), 32);
      EXPECT_EQ(actions_of(spans, rank, steps[i].at("spanId")),
                (std::multiset<std::string>{fmt::format("{}F0", rank), fmt::format("{}F1", rank),
                                            fmt::format("{}B0", rank), fmt::format("{}B1", rank)}));
    }
    Spans saves = named(spans, "save", rank);
    ASSERT_THAT(saves, SizeIs(2));
    EXPECT_EQ(saves[0].at("values").at("gantry.step"), 2);
    EXPECT_EQ(saves[1].at("values").at("gantry.step"), 3);
    // Each microbatch of the three steps is sent forward by rank 0 and backward by rank 1.
    int sends = 0, receives = 0;
    for (const auto& message : named(spans, "message", rank)) {
      const auto& values = message.at("values");
      if (!values.contains("gantry.direction")) continue;
      const bool sends_here = values.at("gantry.operation") == "send";
      EXPECT_EQ(values.at("gantry.direction") == "forward", sends_here == (rank == 0));
      EXPECT_EQ(values.at("gantry.peer"), 1 - rank);
      EXPECT_EQ(values.at("gantry.group"), "pp");
      EXPECT_GT(values.at("gantry.bytes"), 0);
      ++(sends_here ? sends : receives);
    }
    EXPECT_GE(sends, 6);
    EXPECT_EQ(sends, receives);
  }
}

TEST(TrainerOtlp, CollectivesAreMessages) {
  const ScratchFolder scratch;
  TinyCollector collector;
  ASSERT_EQ(train(traced_config(scratch, collector.url(), "{tensor: 2, data: 2, zero: 3}"),
                  [](Trainer& trainer) { trainer.run(); }),
            0);
  const Spans spans = collector.spans();
  expect_one_trace(spans);
  std::set<std::string> operations;
  for (const auto& message : named(spans, "message", 3))
    operations.insert(message.at("values").at("gantry.group").get<std::string>() + " " +
                      message.at("values").at("gantry.operation").get<std::string>());
  EXPECT_THAT(operations,
              ::testing::IsSupersetOf({"tp all_reduce", "gather of parameters all_gather", "dp reduce_scatter"}));
}

TEST(TrainerOtlp, AFailureIsTheStatusOfItsSpans) {
  const ScratchFolder scratch;
  TinyCollector collector;
  const auto fails = [](int rank, std::int64_t step) {
    if (rank == 1 && step == 2) throw std::runtime_error("a fault of the program");
  };
  EXPECT_NE(run_logged(traced_config(scratch, collector.url(), "{data: 2}"), fails), 0);
  const Spans spans = collector.spans();
  for (const char* name : {"run", "step"}) {
    ASSERT_FALSE(named(spans, name, 1).empty()) << name;
    const auto span = named(spans, name, 1).back();
    EXPECT_EQ(span.at("status").at("code"), 2);
    EXPECT_THAT(span.at("status").at("message").get<std::string>(), HasSubstr("a fault of the program"));
  }
  EXPECT_EQ(named(spans, "step", 1).front().at("status"), nlohmann::json::object());
}

// The losses of a run, and its warnings about train.otlp.
std::pair<std::vector<double>, std::vector<std::string>> run_with(const std::string& url) {
  const ScratchFolder scratch;
  std::vector<std::string> warnings;
  const WarningListener listener([&](const std::string& line) {
    if (line.find("otlp") != std::string::npos) warnings.push_back(line);
  });
  std::vector<double> losses;
  EXPECT_EQ(train(traced_config(scratch, url, "{data: 2}"),
                  [&](Trainer& trainer) {
                    if (trainer.world().is_main())
                      trainer.add({.on_step = [&](const StepMetrics& step) { losses.push_back(step.loss); }});
                    trainer.run();
                  }),
            0);
  return {losses, warnings};
}

TEST(TrainerOtlp, ACollectorThatTakesNothingIsOneWarning) {
  const auto [losses, none] = run_with("");
  EXPECT_THAT(none, SizeIs(0));
  const TinyCollector refuses(TinyCollector::kListensNot);
  const auto [with_refusal, refused] = run_with(refuses.url());
  EXPECT_EQ(with_refusal, losses);
  EXPECT_THAT(refused, ::testing::ElementsAre(AllOf(HasSubstr("train.otlp: " + refuses.url()), HasSubstr("refused"))));
  TinyCollector closes([](int) { return std::pair<int, std::string>(0, ""); });
  const auto [with_end, ended] = run_with(closes.url());
  EXPECT_EQ(with_end, losses);
  EXPECT_THAT(ended, SizeIs(1));
  TinyCollector is_silent([](int) { return std::pair<int, std::string>(-1, ""); });
  const auto [with_silence, unanswered] = run_with(is_silent.url());
  EXPECT_EQ(with_silence, losses);
  EXPECT_THAT(unanswered, SizeIs(1));
  EXPECT_GE(is_silent.requests().size(), 1u);
}

}  // namespace
}  // namespace gantry::testing
