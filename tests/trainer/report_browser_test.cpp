// The report in headless Chromium. It renders without errors and every plot has marks, in a desktop window,
// at a phone's width and in dark mode. Its plots respond to pointer, wheel, keys and buttons.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/trainer/report/run_reader.h"
#include "program.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json timeline(double slack) {
  Json first = Json::array(), second = Json::array();
  for (int i = 0; i < 4; ++i) {
    first.push_back({"F", 0, i, 20. * i, 20. * i + 5});
    first.push_back({"B", 0, i, 20. * i + 10 + slack, 20. * i + 19});
    second.push_back({"F", 1, i, 20. * i + 5, 20. * i + 8});
    second.push_back({"B", 1, i, 20. * i + 8 + slack, 20. * i + 10 + slack});
  }
  return {{"bubble", 0.25}, {"makespan", 80}, {"ranks", {first, second}}};
}

// The data of a run with tp 2 x pp 2, with all parts of a report.
Json example() {
  Json data = Json::parse(R"({"name": "runs/<b>example", "live": false, "steps": 80, "written": "", "skipped_lines": 0,
    "config": "model: {policy: gpt2}", "peak_memory_bytes": [9e6, 8e6, 7e6, 6e6],
    "metrics": {"step": [], "loss": [], "grad_norm": [], "lr": [], "tokens_per_second": [], "step_seconds": [],
                "bubble": [], "predicted_bubble": []},
    "evaluation": {"step": [40, 80], "loss": [2.5, 2.2], "perplexity": [12, 9]},
    "rewards": {"step": [40, 80], "rewards/chosen": [0.1, 0.4], "rewards/rejected": [-0.1, -0.2],
                "rewards/margins": [0.2, 0.6], "rewards/accuracies": [0.5, 0.75]},
    "images": {"step": [40, 80], "images": [3, 5]},
    "run": {"format": 1, "mesh": {"axes": [{"name": "pp", "size": 2}, {"name": "dp", "size": 1}, {"name": "tp", "size": 2}],
      "ranks": [{"rank": 0, "pp": 0, "dp": 0, "tp": 0}, {"rank": 1, "pp": 0, "dp": 0, "tp": 1},
                {"rank": 2, "pp": 1, "dp": 0, "tp": 0}, {"rank": 3, "pp": 1, "dp": 0, "tp": 1}]},
      "schedule": {"name": "1f1b", "microbatches": 4},
      "stages": [{"stage": 0, "pipeline_rank": 0, "first_layer": 0, "layers": 2},
                 {"stage": 1, "pipeline_rank": 1, "first_layer": 2, "layers": 1}],
      "memory": [{"parameters": 10, "state_bytes": 5e6}, {"parameters": 10, "state_bytes": 5e6},
                 {"parameters": 10, "state_bytes": 5e6}, {"parameters": 10, "state_bytes": 5e6}],
      "communication": [{"axis": "tp", "operation": "all_reduce", "calls_per_step": 8, "bytes_per_step": 1e6,
                         "seconds_per_step": 0.01}],
      "operators": [{"name": "aten::addmm", "calls": 8, "own_seconds": 0.1, "total_seconds": 0.2, "memory_bytes": -5,
                     "shapes": "[2, 3]"}],
      "environment": {"gantry": "0.1.0", "cores": 2}}})");
  for (int step = 1; step <= 80; ++step) {
    data["metrics"]["step"].push_back(step);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second", "step_seconds", "bubble"})
      data["metrics"][key].push_back(1 + std::exp(-step / 20.0));
    data["metrics"]["predicted_bubble"].push_back(0.2);
  }
  data["metrics"]["loss"][30] = nullptr;
  data["run"]["timeline"] = {{"step", 80}, {"measured", timeline(1)}, {"simulated", timeline(0)}};
  return data;
}

// A script that runs after the page's own scripts, and writes its results to the element #probe.
constexpr const char* kProbe = R"(<pre id="probe"></pre><script>
const plots = [...document.querySelectorAll("svg")].map(svg => svg.querySelectorAll(".mark").length);
const view = document.querySelector(".timeline"), press = key => view.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const bars = () => document.querySelectorAll("rect.action").length, before = bars();
document.querySelector("[aria-label='Zoom in']").click();
press("+");
const zoomed = bars();
press("0");
const tip = document.getElementById("tip"), shown = () => (tip.hidden ? "" : tip.textContent);
const middleOf = each => { const box = each.getBoundingClientRect(); return {clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}; };
const pointTo = (plot, place) => plot.dispatchEvent(new PointerEvent("pointermove", {...place, bubbles: true}));
const firstBar = middleOf(document.querySelector("rect.action"));
pointTo(view, firstBar);
const hovered = shown();
pointTo(view, {...firstBar, clientY: view.getBoundingClientRect().top});
const between = shown();
const wheel = (deltaY, ctrlKey) => {
  const event = new WheelEvent("wheel", {...firstBar, deltaY, ctrlKey, bubbles: true, cancelable: true});
  view.dispatchEvent(event);
  return event.defaultPrevented;
};
const scrolls = !wheel(-120, false), unzoomed = bars();
for (let i = 0; i < 6; ++i) wheel(-120, true);
const wheeled = bars(), label = document.querySelector("rect.action + text.bar-label").textContent;
for (let i = 0; i < 6; ++i) wheel(120, true);
const back = bars();
const curve = document.querySelector("#training .plot");
pointTo(curve, middleOf(curve));
const read = shown();
curve.dispatchEvent(new PointerEvent("pointerleave"));
const left = shown();
press("0"); press("ArrowRight"); press("ArrowDown");
const spoken = document.getElementById("spoken").textContent;
curve.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft", bubbles: true}));
const background = getComputedStyle(document.body).backgroundColor;
document.getElementById("theme").click();
const found = JSON.stringify({
  plots, before, zoomed, after: bars(), spoken, shown: document.getElementById("spoken").textContent,
  hovered, between, scrolls, unzoomed, wheeled, label, back, read, left, tip: !tip.hidden, width: document.documentElement.scrollWidth, window: innerWidth, background,
  switched: getComputedStyle(document.body).backgroundColor, meters: document.querySelectorAll(".meter .mark").length,
  title: document.querySelector("h1").textContent, sections: [...document.querySelectorAll("section")].map(each => each.id)})
  .replace(/[<>&]/g, each => "\\u00" + each.charCodeAt(0).toString(16));
document.getElementById("probe").textContent = found;
parent.postMessage(found, "*");
</script>)";

// Windows of Chromium are at least 500 pixels wide; frames have the requested sizes.
constexpr const char* kPhone =
    R"(<!doctype html><html><head><meta name="color-scheme" content="light dark"></head><body>
<iframe src="report.html" width="390" height="844" style="border:0"></iframe><pre id="probe"></pre><script>
addEventListener("message", event => { document.getElementById("probe").textContent = event.data; });
</script></body></html>)";

struct Seen {
  Json probe;
  std::string log;
};

const std::string& chromium() {
  static const std::string program = find_program("chromium");
  return program;
}

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (chromium().empty()) GTEST_SKIP() << "needs Chromium: apt-get install chromium";
  }
};

Seen look(const Json& data, const std::string& flags, const char* frame = nullptr) {
  const ScratchFolder scratch;
  std::string page = report_page(data);
  page.insert(page.rfind("</body>"), kProbe);
  std::string opened = scratch.write("report.html", page);
  if (frame) opened = scratch.write("frame.html", frame);
  const Outcome run = run_program(
      fmt::format(
          "{} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-extensions --no-first-run "
          "--disable-background-networking --disable-component-update --hide-scrollbars --user-data-dir={} "
          "--virtual-time-budget=2000 --enable-logging=stderr {} --dump-dom file://{}",
          chromium(), scratch / "profile", flags, opened),
      300);
  const auto begin = run.out.find("<pre id=\"probe\">") + 16;
  return {Json::parse(run.out.substr(begin, run.out.find("</pre>", begin) - begin), nullptr, false), run.err};
}

void expect_full(const Seen& seen) {
  EXPECT_THAT(seen.log, Not(HasSubstr("CONSOLE")));
  ASSERT_TRUE(seen.probe.is_object()) << seen.log;
  ASSERT_EQ(seen.probe["plots"].size(), 9u) << seen.probe;  // seven curves, the timeline, the bubble
  for (const auto& marks : seen.probe["plots"]) EXPECT_GT(marks, 0) << seen.probe;
  EXPECT_EQ(seen.probe["meters"], 4 * 2 + 1 + 1);
  EXPECT_EQ(seen.probe["title"], "runs/<b>example");
  EXPECT_EQ(seen.probe["sections"], (Json{"training", "rewards", "images", "pipeline", "memory", "communication",
                                          "operators", "layout", "setup"}));
  EXPECT_EQ(seen.probe["width"], seen.probe["window"]) << "the page is wider than its window";
}

void expect_answers(const Json& probe) {
  EXPECT_EQ(probe["before"], 2 * 2 * 8);
  EXPECT_LT(probe["zoomed"], probe["before"]);
  EXPECT_EQ(probe["after"], probe["before"]);
  EXPECT_THAT(probe["hovered"], HasSubstr("forward, microbatch 0"));
  for (const char* row : {"stage0", "from0 ms", "to5 ms", "takes5"}) EXPECT_THAT(probe["hovered"], HasSubstr(row));
  EXPECT_EQ(probe["between"], "");
  EXPECT_EQ(probe["scrolls"], true) << "a wheel alone moves the page";
  EXPECT_EQ(probe["unzoomed"], probe["before"]);
  EXPECT_LT(probe["wheeled"], probe["before"]);
  EXPECT_EQ(probe["label"], "F0") << "what the pointer is at stays in view";
  EXPECT_EQ(probe["back"], probe["before"]);
  EXPECT_THAT(probe["read"], ::testing::ContainsRegex("^step [0-9]+training"));
  EXPECT_EQ(probe["left"], "");
  EXPECT_THAT(probe["spoken"], HasSubstr("microbatch 0"));
  EXPECT_THAT(probe["shown"], ::testing::ContainsRegex("^step [0-9]+: training"));
  EXPECT_EQ(probe["tip"], true);
}

TEST_F(Browser, RendersAndAnswers) {
  const Seen seen = look(example(), "--window-size=1280,900");
  expect_full(seen);
  expect_answers(seen.probe);
  EXPECT_EQ(seen.probe["background"], "rgb(245, 246, 248)");
  EXPECT_EQ(seen.probe["switched"], "rgb(15, 19, 25)");
}

TEST_F(Browser, FitsAPhoneInTheDark) {
  const Seen seen = look(example(), "--window-size=600,900 --blink-settings=preferredColorScheme=0", kPhone);
  expect_full(seen);
  expect_answers(seen.probe);
  EXPECT_EQ(seen.probe["window"], 390);
  EXPECT_EQ(seen.probe["background"], "rgb(15, 19, 25)");
}

TEST_F(Browser, ShowsARunWithoutStepsOrReport) {
  Json data = example();
  data["run"] = nullptr;
  data["peak_memory_bytes"] = Json::array();
  for (auto& column : data["metrics"]) column = Json::array();
  for (const char* part : {"evaluation", "rewards", "images"})
    for (auto& column : data[part]) column = Json::array();
  const ScratchFolder scratch;
  const std::string page = scratch.write("report.html", report_page(data));
  const Outcome run = run_program(
      fmt::format("{} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir={} "
                  "--virtual-time-budget=1000 --enable-logging=stderr --dump-dom file://{}",
                  chromium(), scratch / "profile", page),
      300);
  EXPECT_THAT(run.err, Not(HasSubstr("CONSOLE")));
  EXPECT_THAT(run.out, HasSubstr("no step yet"));
}

}  // namespace
}  // namespace gantry::testing
