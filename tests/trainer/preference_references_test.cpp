// The references of runs with preferences: a cache of their log-probabilities, and adapters.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "preference_run.h"

namespace gantry::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::string kAdapted = GANTRY_SOURCE_DIR "/tests/golden/lora/";

std::vector<fs::path> files_in(const std::string& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// The numbers that two runs with the same layout have bitwise.
void expect_equal_metrics(const std::vector<nlohmann::json>& expected, const std::vector<nlohmann::json>& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (const char* key : {"loss", "grad_norm", "rewards/chosen", "rewards/rejected", "kl", "eval_loss"})
      if (expected[i].contains(key)) EXPECT_EQ(actual[i].at(key), expected[i].at(key)) << i << key;
}

// Pairs whose tokens all these models have.
std::string pairs_of_numbers(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += nlohmann::json{{"prompt", fmt::format("{}+{}=", i, i)},
                            {"chosen", std::to_string(2 * i)},
                            {"rejected", std::string(static_cast<std::size_t>(i % 4 + 1), '9')}}
                 .dump() +
             "\n";
  return lines;
}

std::string with_base(const std::string& name) {
  return fmt::format(
      "--set 'model={{path: {}{}}}' --set data.tokenizer=bytes --set 'lora={{r: 2, target_modules: [q_proj]}}' ",
      kAdapted, name);
}

TEST(PreferenceReference, IsReadFromACache) {
  for (const char* objective : {"{name: dpo}", "{name: kto}"}) {
    const bool are_pairs = std::string(objective) == "{name: dpo}";
    const auto lines = [&](int count) { return are_pairs ? pairs_of_texts(count) : judged_texts(count); };
    const PreferenceRun run(objective, lines(11));
    const std::string plain = fmt::format("--set evaluation.path={} --set evaluation.every=5 ",
                                          run.scratch.write("held_out.jsonl", lines(3))),
                      cached = plain + "--set train.objective.reference_cache=" + (run.scratch / "cache") + " ";
    ASSERT_EQ(run.train("plain", plain).exit_code, 0);
    const Outcome first = run.train("first", cached), second = run.train("second", cached);
    ASSERT_EQ(first.exit_code, 0) << first.err;
    ASSERT_EQ(second.exit_code, 0) << second.err;
    EXPECT_THAT(first.out, HasSubstr(are_pairs ? "14 pairs of completions, computed and stored in "
                                               : "14 completions, computed and stored in "));
    EXPECT_THAT(second.out,
                HasSubstr(are_pairs ? "14 pairs of completions, read from " : "14 completions, read from "));
    expect_equal_metrics(run.metrics("plain"), run.metrics("first"));
    expect_equal_metrics(run.metrics("plain"), run.metrics("second"));
    const Outcome other = run.train("other", cached +
                                                 "--set parallel.pipeline=2 --set data.batch_size=3 --set "
                                                 "train.objective.beta=0.3 --set optimizer.lr=0.1");
    EXPECT_THAT(other.out, HasSubstr(", read from ")) << other.err;
    run.scratch.write("held_out.jsonl", lines(5));
    EXPECT_THAT(run.train("other", cached).out, HasSubstr("11 read from "));
    run.scratch.write("pairs.jsonl", lines(12));
    EXPECT_THAT(run.train("other", cached).out, HasSubstr("5 read from "));
    EXPECT_THAT(run.train("other", cached + "--set train.seed=2").out, HasSubstr(", computed and stored in "));
    EXPECT_THAT(run.train("other", cached + "--set precision=float32").out, HasSubstr(", computed and stored in "));
  }
}

TEST(PreferenceReference, OfADamagedCacheIsOneLine) {
  const PreferenceRun run("{name: ipo}");
  const std::string sets = "--set train.objective.reference_cache=" + (run.scratch / "cache");
  ASSERT_EQ(run.train("run", sets).exit_code, 0);
  const auto files = files_in(run.scratch / "cache");
  ASSERT_EQ(files.size(), 1u);
  const std::string whole = read_file(files.front());
  std::string changed = whole;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  for (const std::string& bytes :
       {whole.substr(0, whole.size() - 9), whole.substr(0, 3), changed, std::string("another file")}) {
    const std::string path = run.scratch.write("cache/" + files.front().filename().string(), bytes);
    const Outcome outcome = run.train("run", sets);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(files.front().string()));
    EXPECT_THAT(outcome.err, HasSubstr("remove the file, so that they are computed again"));
    EXPECT_EQ(read_file(path), bytes) << "the file is kept";
  }
  fs::remove(files.front());
  EXPECT_THAT(run.train("run", sets).out, HasSubstr("computed and stored"));
  const Outcome file = run.train("run", "--set train.objective.reference_cache=" + run.config);
  EXPECT_EQ(file.exit_code, 3) << file.err;
  EXPECT_THAT(file.err, HasSubstr("train.objective.reference_cache: "));
}

TEST(PreferenceReference, MayBeGoneWhenARunContinues) {
  const PreferenceRun run("{name: dpo}", pairs_of_numbers(11));
  const std::string reference = run.scratch / "reference";
  fs::create_directory(reference);
  for (const char* file : {"config.json", "model.safetensors"}) fs::copy(kAdapted + "qv/" + file, reference);
  const std::string sets = with_base("qv") + "--set train.objective.reference=" + reference +
                           " --set checkpoint.every=2 --set checkpoint.path=" + (run.scratch / "saved"),
                    cache = " --set train.objective.reference_cache=" + (run.scratch / "cache");
  ASSERT_EQ(run.train("run", sets + cache + " --set train.steps=2").exit_code, 0);
  fs::rename(reference, run.scratch / "moved");
  const Outcome lost = run.train("run", sets + " --set checkpoint.resume=auto");
  EXPECT_NE(lost.exit_code, 0);
  const Outcome rest = run.train("run", sets + cache + " --set checkpoint.resume=auto --set parallel.tensor=2");
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("11 pairs of completions, read from "));
  run.scratch.write("pairs.jsonl", pairs_of_numbers(12));
  const Outcome other = run.train("other", sets + cache);
  EXPECT_EQ(other.exit_code, 4) << other.err;
  EXPECT_THAT(other.err, HasSubstr("train.objective.reference: " + reference + " does not exist, and "));
}

TEST(PreferenceReference, OfAnAdapterIsThatOfTheMergedModel) {
  const std::string adapter = kAdapted + "dora/adapter";
  const PreferenceRun run("{name: dpo}", pairs_of_numbers(11));
  const std::string merged = run.scratch / "merged";
  const Outcome merge = run_program(fmt::format("{} checkpoint merge {} {} --model {}dora --dtype float64",
                                                gantry_program(), adapter, merged, kAdapted));
  ASSERT_EQ(merge.exit_code, 0) << merge.err;
  const auto sets = [&](const std::string& reference) {
    return with_base("dora") + "--set train.objective.reference=" + reference + " ";
  };
  const Outcome whole = run.train("merged", sets(merged));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto metrics = run.metrics("merged");
  EXPECT_GT(std::abs(metrics[0].at("rewards/margins").get<double>()), 1e-6) << "the reference is another model";
  for (const char* layout : {"parallel.data=1", "parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2",
                             "parallel.data=2 --set parallel.zero=1", "parallel.data=2 --set parallel.zero=3"}) {
    const Outcome other = run.train("other", sets(adapter) + "--set " + layout);
    ASSERT_EQ(other.exit_code, 0) << layout << other.err;
    expect_same_metrics(metrics, run.metrics("other"), layout);
  }
}

// The reference of lora.path is the base with this adapter, too.
TEST(PreferenceReference, OfAnAdapterOnAQuantizedBase) {
  const PreferenceRun run("{name: dpo}", pairs_of_numbers(11));
  const std::string adapter = kAdapted + "qlora_nf4/adapter",
                    sets = fmt::format(
                        "--set 'model={{path: {}qlora_nf4, quantize: nf4}}' --set data.tokenizer=bytes "
                        "--set 'lora={{path: {}}}' ",
                        kAdapted, adapter);
  const Outcome own = run.train("own", sets);
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const Outcome named = run.train("named", sets + "--set parallel.tensor=2 --set train.objective.reference=" + adapter);
  ASSERT_EQ(named.exit_code, 0) << named.err;
  expect_same_metrics(run.metrics("own"), run.metrics("named"), "nf4");
}

TEST(PreferenceReference, OfAnAdapterMayBeThatOfAFullModel) {
  const PreferenceRun run("{name: dpo}", pairs_of_numbers(11));
  const std::string cache = " --set train.objective.reference_cache=" + (run.scratch / "cache"),
                    sets = fmt::format("--set 'model={{path: {}qv}}' --set data.tokenizer=bytes ", kAdapted),
                    reference = "--set train.objective.reference=" + kAdapted + "qv/adapter" + cache;
  const Outcome full = run.train("full", sets + reference);
  ASSERT_EQ(full.exit_code, 0) << full.err;
  const Outcome again = run.train("again", sets + reference);
  EXPECT_THAT(again.out, HasSubstr(", read from ")) << again.err;
  expect_equal_metrics(run.metrics("full"), run.metrics("again"));
  const std::string other = "--set train.objective.reference=" + kAdapted + "tied_tables/adapter";
  const Outcome unfit = run.train("other", sets + other);
  EXPECT_EQ(unfit.exit_code, 3) << unfit.err;
  EXPECT_THAT(unfit.err, HasSubstr("train.objective.reference: the adapter in "));
}

}  // namespace
}  // namespace gantry::testing
