// Changes of the configuration in a resumed run: changes that move its position in the data, changes with
// another effect, and changes without an effect.
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/format/run_changes.h"
#include "program.h"

namespace gantry::testing {
namespace {

constexpr const char* kRun =
    "model: {policy: gpt2}\ndata: {format: text, path: a.txt, sequence_length: 32, batch_size: 4}\n"
    "train: {steps: 10, seed: 3}\nlr_schedule: {name: cosine}\n";

// "KEY" for each change, followed by "!" if the change moves samples.
std::string changed(const std::vector<std::string>& sets, const DataPlace& place = {40, 100, 100},
                    const std::vector<std::string>& before = {}) {
  std::string keys;
  for (const auto& change : changes_between(Config::parse(kRun, "c", before), Config::parse(kRun, "c", sets), place))
    keys += (keys.empty() ? "" : " ") + change.key + (change.moves_samples ? "!" : "");
  return keys;
}

TEST(RunChanges, DataOrderAndLengthMoveSamples) {
  EXPECT_EQ(changed({}), "");
  EXPECT_EQ(changed({"data.path=b.txt"}), "data.path!");
  EXPECT_EQ(changed({"data.format=tokens"}), "data.format!");
  EXPECT_EQ(changed({"data.sequence_length=64"}, {40, 100, 50}), "data.sequence_length!");
  EXPECT_EQ(changed({"data.shuffle=false"}), "data.shuffle!");
  EXPECT_EQ(changed({"train.seed=4"}), "train.seed!");
  EXPECT_EQ(changed({"data.batch_size=8", "data.prefetch=0", "optimizer.lr=1"}), "") << "the place is one in samples";
}

TEST(RunChanges, SourcesAndTheirWeightsDo) {
  const std::string data = "data={format: text, sequence_length: 32, batch_size: 4, sources: ";
  const std::string one = data + "[{path: a.txt, weight: 1}, {path: b.txt, weight: 2}]}";
  const std::string other = data + "[{path: a.txt, weight: 1}, {path: b.txt, weight: 3}]}";
  EXPECT_EQ(changed({one}, {}, {one}), "");
  EXPECT_EQ(changed({other}, {}, {one}), "data.sources!");
  EXPECT_EQ(changed({one}), "data.sources!");
}

TEST(RunChanges, ScaledWeightsAreTheSameShares) {
  const SampledContent a{1, 9, "aa"}, b{1, 9, "bb"};
  const auto weighted = [](int first, int second) {
    return fmt::format(
        "data={{format: text, sequence_length: 32, batch_size: 4, sources: [{{path: a.txt, weight: {}}}, "
        "{{path: b.txt, weight: {}}}]}}",
        first, second);
  };
  EXPECT_EQ(changed({weighted(2, 6)}, {40, 100, 100, {a, b}, {a, b}}, {weighted(1, 3)}), "");
  EXPECT_EQ(changed({weighted(2, 7)}, {40, 100, 100, {a, b}, {a, b}}, {weighted(1, 3)}), "data.sources!");
}

// Tokenizers are compared by the content of their files if it is known, else by path.
TEST(RunChanges, ATokenizerIsComparedByItsContent) {
  const SampledContent one{2, 9, "aa"}, other{2, 9, "bb"};
  const auto place = [](std::vector<SampledContent> before, std::vector<SampledContent> now) {
    DataPlace place{40, 100, 100};
    place.tokenizer_before = std::move(before), place.tokenizer_now = std::move(now);
    return place;
  };
  const std::vector<std::string> here{"data.tokenizer=here"}, there{"data.tokenizer=there"};
  EXPECT_EQ(changed(here, place({one}, {one}), there), "");
  EXPECT_EQ(changed(here, place({one}, {other}), here), "data.tokenizer!");
  EXPECT_EQ(changed({}, place({one}, {other})), "data.tokenizer!") << "the model's own";
  EXPECT_EQ(changed(here, place({}, {one}), there), "data.tokenizer!") << "a checkpoint that does not say";
  EXPECT_EQ(changed(here, place({}, {one}), here), "");
}

TEST(RunChanges, ADroppedOrGrownFileIsSeenByItsSamples) {
  EXPECT_EQ(changed({}, {40, 100, 101}), "number of samples!");
  EXPECT_EQ(changed({}, {40, std::nullopt, 101}), "") << "a checkpoint that does not say";
  EXPECT_EQ(changed({}, {40, 100, 0}), "") << "a loader that does not know";
  const std::vector<std::string> in_order{"data.shuffle=false"};
  EXPECT_EQ(changed(in_order, {40, 100, 101}, in_order), "number of samples") << "the new samples follow";
  EXPECT_EQ(changed(in_order, {40, 100, 99}, in_order), "number of samples!");
  EXPECT_EQ(changed(in_order, {140, 100, 101}, in_order), "number of samples!") << "in the second epoch";
}

// Data are compared by content if it is known, else by path.
TEST(RunChanges, TheSameContentIsTheSameDataUnderAnyPath) {
  const SampledContent one{1, 9, "aa"}, other{1, 9, "bb"}, grown{1, 12, "cc"};
  const auto place = [](std::vector<SampledContent> before, std::vector<SampledContent> now, bool begins = false) {
    return DataPlace{40, 100, 100, std::move(before), std::move(now), begins};
  };
  EXPECT_EQ(changed({"data.path=b.txt"}, place({one}, {one})), "");
  EXPECT_EQ(changed({}, place({one}, {other})), "data.path!");
  EXPECT_EQ(changed({"data.path=b.txt"}, place({}, {one})), "data.path!") << "a checkpoint that does not state it";
  EXPECT_EQ(changed({}, place({one}, {})), "") << "a rank that cannot read the data";
  EXPECT_EQ(changed({}, place({one}, {grown}, true)), "data.path!") << "in another order";
  EXPECT_EQ(changed({"data.shuffle=false"}, place({one}, {grown}, true), {"data.shuffle=false"}), "");
  EXPECT_EQ(describe(changes_between(Config::parse(kRun, "c", {}), Config::parse(kRun, "c", {}),
                                     place({{2, 9, "0123456789"}}, {other}))),
            "the checkpoint was made with data.path a.txt (2 files, 9 bytes, content 01234567), and this run has a.txt "
            "(9 bytes, content bb)");
}

TEST(SampledContent, IsThatOfPiecesAndSizes) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "d/a");
  const std::string one = scratch.write("d/a/one", std::string(100, 'x')), two = scratch.write("d/two", "yy");
  const SampledContent both = sample_content({one, two});
  EXPECT_EQ(both.files, 2u);
  EXPECT_EQ(both.bytes, 102u);
  EXPECT_EQ(sample_content({one, two}, "", 100), sample_content({one}));
  EXPECT_NE(sample_content({two, one}), both);
  EXPECT_NE(sample_content({one, two}, scratch / "d"), both) << "names count";
  scratch.write("d/a/one", std::string(99, 'x') + "z");
  EXPECT_NE(sample_content({one, two}), both);
  EXPECT_EQ(contents_from_json(to_json({both})), std::vector<SampledContent>{both});
  for (const char* text : {"null", "[1]", R"([{"files": -1, "bytes": 1, "hash": "a"}])", R"([{"files": 1}])"})
    EXPECT_TRUE(contents_from_json(nlohmann::json::parse(text)).empty()) << text;
  // A large file is sampled at its beginning, at its end, and between.
  std::string large(40 << 20, 'l');
  const std::string path = scratch.write("large", large);
  const SampledContent sampled = sample_content({path});
  for (const std::size_t changed : {std::size_t{0}, large.size() - 1}) {
    large[changed] = 'm';
    scratch.write("large", large);
    EXPECT_NE(sample_content({path}), sampled) << changed;
    large[changed] = 'l';
  }
}

TEST(RunChanges, StepsAreNamedWithWhatTheyChange) {
  const auto of = [](const std::string& name) {
    const std::vector<std::string> sets{"lr_schedule.name=" + name}, more{"lr_schedule.name=" + name, "train.steps=20"};
    return changes_between(Config::parse(kRun, "c", sets), Config::parse(kRun, "c", more), {});
  };
  ASSERT_EQ(of("cosine").size(), 1u);
  EXPECT_FALSE(of("cosine")[0].moves_samples);
  EXPECT_EQ(of("cosine")[0].effect, "the learning rate of lr_schedule cosine depends on it");
  EXPECT_EQ(describe(of("cosine")), "the checkpoint was made with train.steps 10, and this run has 20");
  EXPECT_EQ(of("constant")[0].effect, "");
}

TEST(RunChanges, ASeedWithoutAnOrderChangesDropoutAlone) {
  EXPECT_EQ(changed({"data.shuffle=false", "train.seed=4"}, {}, {"data.shuffle=false"}), "train.seed");
}

TEST(RunChanges, ARunWithoutDataComparesNone) {
  const Config without = Config::parse("model: {policy: gpt2}\n"), with = Config::parse(kRun, "c", {"train.seed=1"});
  EXPECT_TRUE(changes_between(without, with, {}).empty());
}

}  // namespace
}  // namespace gantry::testing
