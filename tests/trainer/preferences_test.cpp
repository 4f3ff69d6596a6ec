// Runs with train.objective: the scores of the reference, a teacher, layouts, held-out data, resumed runs and bad
// lines.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "preference_run.h"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(PreferenceRun, BeginsAtTheReferenceAndIsEqualInEveryLayout) {
  const PreferenceRun run("{name: dpo, beta: 0.5}");
  const std::string exact = "--set model.config.resid_pdrop=0 ";
  const Outcome alone = run.train("alone", exact);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("reference: log-probabilities of 11 pairs"));
  EXPECT_THAT(alone.out, HasSubstr("11 pairs of completions"));
  const auto metrics = run.metrics("alone");
  ASSERT_EQ(metrics.size(), 5u);
  EXPECT_NEAR(metrics[0].at("loss").get<double>(), std::log(2), 1e-9);
  EXPECT_NEAR(metrics[0].at("rewards/margins").get<double>(), 0, 1e-9);
  EXPECT_EQ(metrics[0].at("tokens"), 4);
  EXPECT_GT(metrics[4].at("rewards/margins").get<double>(), 0.1);
  EXPECT_GT(metrics[4].at("rewards/accuracies").get<double>(), 0.5);
  for (const char* sets : {"parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2",
                           "parallel.data=2 --set parallel.zero=1", "parallel.data=3 --set parallel.zero=3"}) {
    const Outcome other = run.train("other", exact + "--set " + sets);
    ASSERT_EQ(other.exit_code, 0) << sets << other.err;
    expect_same_metrics(metrics, run.metrics("other"), sets);
  }
}

// The decoder of a reward model has a head for one label.
std::string reward_model() {
  return "--set 'model={policy: llama, config: {architectures: [LlamaForSequenceClassification], num_labels: 1, "
         "vocab_size: 256, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 2, "
         "max_position_embeddings: 32}}' ";
}

TEST(PreferenceRun, TrainsOtherObjectivesInEveryLayout) {
  struct Case {
    const char* objective;
    std::string lines, sets;
    double first_loss;  // 0: unknown
  };
  // With a reference that equals the model, the divergence is 0 and both kinds of completions have a loss of 1/2.
  const std::vector<Case> cases = {{"{name: kto, undesirable_weight: 1}", judged_texts(11), "", 0.5},
                                   {"{name: orpo, beta: 0.3}", pairs_of_texts(11), "", 0},
                                   {"{name: cpo, beta: 0.3}", pairs_of_texts(11), "", 0},
                                   {"{name: reward}", pairs_of_texts(11), reward_model(), 0}};
  for (const Case& one : cases) {
    const PreferenceRun run(one.objective, one.lines);
    const std::string held_out = run.scratch.write("held_out.jsonl", one.lines);
    const std::string sets = one.sets + fmt::format("--set evaluation.path={} --set evaluation.every=5 ", held_out) +
                             (one.sets.empty() ? "--set model.config.resid_pdrop=0 " : "");
    const Outcome alone = run.train("alone", sets);
    ASSERT_EQ(alone.exit_code, 0) << one.objective << alone.err;
    const auto metrics = run.metrics("alone");
    ASSERT_EQ(metrics.size(), 6u) << one.objective;
    EXPECT_TRUE(metrics[5].contains("eval_rewards/margins")) << one.objective;
    EXPECT_FALSE(metrics[5].contains("perplexity")) << one.objective;
    if (one.first_loss > 0) EXPECT_NEAR(metrics[0].at("loss").get<double>(), one.first_loss, 1e-9) << one.objective;
    EXPECT_LT(metrics[4].at("loss").get<double>(), metrics[0].at("loss").get<double>()) << one.objective;
    for (const char* layout :
         {"parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2", "parallel.data=3 --set parallel.zero=3"}) {
      const Outcome other = run.train("other", sets + "--set " + layout);
      ASSERT_EQ(other.exit_code, 0) << one.objective << layout << other.err;
      expect_same_metrics(metrics, run.metrics("other"), std::string(one.objective) + layout);
    }
  }
}

TEST(PreferenceRun, HasNoMeansOfCompletionsThatAStepDoesNotHave) {
  const PreferenceRun run("{name: kto}", R"({"prompt": "a", "completion": "b", "label": true}
{"prompt": "c", "completion": "d", "label": true}
)");
  const Outcome outcome = run.train("run", "--set data.batch_size=2");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const Json& step : run.metrics("run")) {
    EXPECT_TRUE(step.contains("rewards/chosen"));
    EXPECT_FALSE(step.contains("rewards/rejected"));
    EXPECT_FALSE(step.contains("rewards/margins"));
  }
}

// Each text begins at position 0.
TEST(PreferenceRun, APairMayBeLongerThanThePositions) {
  const std::string fits = R"({"prompt": "aaaaaaa", "chosen": "bbbbb", "rejected": "ccccc"})",
                    too_long = R"({"prompt": "a", "chosen": "bbbbbbbbbbbbbbb", "rejected": "c"})";
  const std::string positions = "--set model.config.n_positions=12 --set data.batch_size=1 ";
  const PreferenceRun run("{name: dpo}", fits + "\n");
  EXPECT_EQ(run.train("run", positions).exit_code, 0);
  const Outcome row = run.train("run", positions + "--set data.sequence_length=25");
  EXPECT_EQ(row.exit_code, 3);
  EXPECT_THAT(row.err,
              HasSubstr("25 is longer than the model's 12 positions for each of 2 texts; expected at most 24"));
  const Outcome text = PreferenceRun("{name: dpo}", fits + "\n" + too_long + "\n").train("run", positions);
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_THAT(text.err, HasSubstr("pairs.jsonl:2: the chosen text has "));
  EXPECT_THAT(text.err, HasSubstr("more than the model's 12 positions"));
}

TEST(PreferenceRun, RefusesBadJudgedLinesByFileAndLine) {
  const std::string good = R"({"prompt": "a", "completion": "b", "label": true})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "a", "completion": "b"})", "the line has no 'label'"},
      {R"({"prompt": "a", "completion": "", "label": true})", "'completion' is empty"},
      {R"({"prompt": "a", "completion": "b", "label": "good"})", "the label is \"good\""},
      {R"({"prompt": "a", "completion": ["b"], "label": false})", "the line has texts and lists of messages"},
      {R"({"prompt": "aaaaaaaaaaaaaaa", "completion": "cccccccccccccc", "label": 1})",
       "more than data.sequence_length 24"}};
  for (const auto& [line, says] : cases) {
    const PreferenceRun run("{name: kto}", good + "\n" + line + "\n" + good + "\n");
    const Outcome outcome = run.train("run");
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("pairs.jsonl:2: "));
    EXPECT_THAT(outcome.err, HasSubstr(says));
  }
  const PreferenceRun single("{name: kto}", good + "\n");
  EXPECT_THAT(single.train("run").err, HasSubstr("at least two lines"));
}

// JSON lines of short texts.
std::string sums(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += Json{{"text", fmt::format("{} and {} is {}", i, i, 2 * i).substr(0, 12)}}.dump() + "\n";
  return lines;
}

TEST(DistillationRun, LearnsFromATeacherInEveryLayout) {
  const std::string lines = sums(20);
  const PreferenceRun run(
      "{name: distill, teacher: " GANTRY_SOURCE_DIR "/tests/golden/llama, loss_type: jsd, temperature: 2}", lines);
  const std::string sets = fmt::format(
      "--set model.config.resid_pdrop=0 --set model.config.vocab_size=211 --set data.tokenizer=bytes "
      "--set data.sequence_length=16 --set evaluation.path={} --set evaluation.every=5 ",
      run.scratch.write("held_out.jsonl", lines));
  const Outcome alone = run.train("alone", sets);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto metrics = run.metrics("alone");
  ASSERT_EQ(metrics.size(), 6u);
  EXPECT_LT(metrics[4].at("loss").get<double>(), metrics[0].at("loss").get<double>());
  for (const char* layout :
       {"parallel.tensor=2", "parallel.pipeline=2", "parallel.context=2", "parallel.data=2 --set parallel.zero=3"}) {
    const Outcome other = run.train("other", sets + "--set " + layout);
    ASSERT_EQ(other.exit_code, 0) << layout << other.err;
    expect_same_metrics(metrics, run.metrics("other"), layout);
  }
}

// The checkpoint has the projection of the hidden states, and the commands that read it do not need it.
TEST(DistillationRun, ComparesHiddenStates) {
  const PreferenceRun run("{name: distill, teacher: " GANTRY_SOURCE_DIR "/tests/golden/llama, hidden_weight: 0.5}",
                          sums(20));
  const std::string sets =
      "--set model.config.resid_pdrop=0 --set model.config.n_embd=12 --set model.config.vocab_size=211 "
      "--set data.tokenizer=bytes --set data.sequence_length=16 --set checkpoint.every=2 --set checkpoint.path=";
  const std::string one = run.scratch / "one", two = run.scratch / "two";
  const Outcome alone = run.train("alone", sets + one);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto metrics = run.metrics("alone");
  EXPECT_LT(metrics[4].at("loss").get<double>(), metrics[0].at("loss").get<double>());
  const std::string split = sets + two + " --set parallel.tensor=2 --set parallel.pipeline=2";
  ASSERT_EQ(run.train("parts", split + " --set train.steps=2").exit_code, 0);
  const Outcome rest = run.train("parts", sets + two + " --set parallel.data=2 --set checkpoint.resume=auto");
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  expect_same_metrics(metrics, run.metrics("parts"), "resumed");
  const Outcome exported =
      run_program(fmt::format("{} checkpoint export {} {}", gantry_program(), one, run.scratch / "exported"));
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  const Outcome text = run_program(fmt::format(
      "{} generate --model {} --prompt a --max-new-tokens 2 --set precision=float64", gantry_program(), one));
  EXPECT_EQ(text.exit_code, 0) << text.err;
}

TEST(DistillationRun, LearnsFromATeacherInALayoutOfItsOwn) {
  const std::string lines = sums(21);
  const PreferenceRun run("{name: distill, teacher: " GANTRY_SOURCE_DIR "/tests/golden/llama, alpha: 0.2}", lines);
  const std::string sets = fmt::format(
      "--set model.config.resid_pdrop=0 --set model.config.vocab_size=211 --set model.config.n_layer=4 "
      "--set data.tokenizer=bytes --set data.sequence_length=16 --set evaluation.path={} --set evaluation.every=5 ",
      run.scratch.write("held_out.jsonl", lines));
  const Outcome alone = run.train("alone", sets);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto metrics = run.metrics("alone");
  ASSERT_EQ(metrics.size(), 6u);
  for (const char* layout :
       {"parallel.data=2 --set parallel.zero=3 --set train.objective.teacher_parallel.tensor=2",
        "parallel.pipeline=2 --set parallel.tensor=2 --set train.objective.teacher_parallel.tensor=4",
        "parallel.pipeline=4 --set train.objective.teacher_parallel.pipeline=2",
        "parallel.context=2 --set train.objective.teacher_parallel.tensor=2"}) {
    const Outcome other = run.train("other", sets + "--set " + layout);
    ASSERT_EQ(other.exit_code, 0) << layout << other.err;
    expect_same_metrics(metrics, run.metrics("other"), layout);
  }
  const Outcome refused =
      run.train("other", sets + "--set parallel.tensor=2 --set train.objective.teacher_parallel.pipeline=3");
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("train.objective.teacher_parallel: tensor 1 * pipeline 3 = 3 does not divide"));
}

TEST(DistillationRun, RefusesASharedVocabulary) {
  const PreferenceRun run("{name: distill, teacher: " GANTRY_SOURCE_DIR "/tests/golden/llama}",
                          Json{{"text", "one and two"}}.dump() + "\n");
  const Outcome outcome =
      run.train("run",
                "--set model.config.vocab_size=211 --set data.tokenizer=bytes --set data.batch_size=1 "
                "--set data.sequence_length=16 --set parallel.pipeline=2 "
                "--set parallel.vocabulary=pipeline");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("parallel.vocabulary"));
}

TEST(DistillationRun, RefusesATeacherThatDoesNotFit) {
  const PreferenceRun run("{name: distill, teacher: " GANTRY_SOURCE_DIR "/tests/golden/distillation/jsd/teacher}");
  const std::string text = run.scratch.write("text.txt", std::string(400, 'a'));
  const Outcome other = run.train("run", "--set data.format=text --set data.path=" + text);
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("the vocabulary of the teacher has 61 tokens, and that of the student 256"));
  const Outcome missing =
      run.train("run", "--set train.objective.teacher=nowhere --set data.format=text --set data.path=" + text);
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_THAT(missing.err, HasSubstr("nowhere"));
}

TEST(PreferenceRun, GoesOnWithTheSameReference) {
  for (const char* objective : {"{name: ipo}", "{name: simpo, beta: 2, gamma: 1}", "{name: kto}"}) {
    const bool are_pairs = std::string(objective) != "{name: kto}";
    const auto lines = [&](int count) { return are_pairs ? pairs_of_texts(count) : judged_texts(count); };
    const PreferenceRun run(objective, lines(11));
    const std::string held_out = run.scratch.write("held_out.jsonl", lines(3));
    const std::string sets =
        fmt::format("--set evaluation.path={} --set evaluation.every=2 --set checkpoint.every=2", held_out);
    const Outcome whole = run.train("whole", sets + " --set checkpoint.path=" + (run.scratch / "one"));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const std::string two = " --set checkpoint.path=" + (run.scratch / "two");
    ASSERT_EQ(run.train("parts", sets + two + " --set train.steps=2").exit_code, 0);
    const Outcome rest = run.train("parts", sets + two + " --set checkpoint.resume=auto");
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    expect_same_metrics(run.metrics("whole"), run.metrics("parts"), objective);
  }
}

// The adapters change nothing before the first step, and a directory of the same weights is the same reference.
TEST(PreferenceRun, TakesTheReferenceWithoutAdapters) {
  const PreferenceRun run("{name: dpo, beta: 0.5}");
  const std::string sets = fmt::format(
      "--set 'model={{path: {}}}' --set data.tokenizer=bytes --set data.sequence_length=16 --set parallel.tensor=2 "
      "--set 'lora={{r: 2, target_modules: [q_proj, v_proj]}}' --set data.bad_lines=skip",
      GANTRY_SOURCE_DIR "/tests/golden/llama");
  const Outcome initial = run.train("initial", sets);
  ASSERT_EQ(initial.exit_code, 0) << initial.err;
  const auto metrics = run.metrics("initial");
  EXPECT_NEAR(metrics[0].at("loss").get<double>(), std::log(2), 1e-12);
  const std::string reference = " --set train.objective.reference=" GANTRY_SOURCE_DIR "/tests/golden/llama";
  ASSERT_EQ(run.train("named", sets + reference).exit_code, 0);
  expect_same_metrics(metrics, run.metrics("named"), "reference");
}

TEST(PreferenceRun, ReadsChatsWithAndWithoutAPrompt) {
  const auto message = [](const char* role, const char* text) { return Json{{"role", role}, {"content", text}}; };
  const Json question = message("user", "hi"), good = message("assistant", "yes"), bad = message("assistant", "no");
  const std::string apart = Json{{"prompt", {question}}, {"chosen", {good}}, {"rejected", {bad}}}.dump() + "\n";
  const std::string whole = Json{{"chosen", {question, good}}, {"rejected", {question, bad}}}.dump() + "\n";
  const PreferenceRun one("{name: simpo}", apart + apart), other("{name: simpo}", whole + whole);
  const std::string sets =
      "--set data.chat_template=zephyr --set data.sequence_length=128 --set model.config.n_positions=128 "
      "--set data.batch_size=2";
  const Outcome first = one.train("run", sets), second = other.train("run", sets);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_EQ(second.exit_code, 0) << second.err;
  expect_same_metrics(one.metrics("run"), other.metrics("run"), "prompt");
}

TEST(PreferenceRun, RefusesBadPairsByFileAndLine) {
  const std::string good = R"({"prompt": "a", "chosen": "b", "rejected": "c"})";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"prompt": "a", "chosen": "b"})", "the line has no 'rejected'"},
      {R"({"prompt": "a", "chosen": "b", "rejected": "b"})", "chosen and rejected are equal"},
      {R"({"prompt": "a", "chosen": "", "rejected": "b"})", "'chosen' is empty"},
      {R"({"chosen": "a", "rejected": "b"})", "the line has no 'prompt'"},
      {R"({"prompt": "a", "chosen": 3, "rejected": "b"})", "'chosen' is neither a text nor a list of messages"},
      {R"({"prompt": "a", "chosen": "b", "rejected": []})", "'rejected' is empty"},
      {R"({"prompt": "a", "chosen": "bbbbbbbbbbbbbbb", "rejected": "cccccccccccccc"})",
       "more than data.sequence_length 24"}};
  for (const auto& [line, says] : cases) {
    const PreferenceRun run("{name: dpo}", good + "\n" + line + "\n" + good + "\n");
    const Outcome outcome = run.train("run");
    EXPECT_EQ(outcome.exit_code, 4) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("pairs.jsonl:2: "));
    EXPECT_THAT(outcome.err, HasSubstr(says));
    const Outcome skipped = run.train("run", "--set data.bad_lines=skip --set data.batch_size=2");
    EXPECT_EQ(skipped.exit_code, 0) << skipped.err;
    EXPECT_THAT(skipped.out, HasSubstr("2 pairs of completions"));
  }
}

TEST(PreferenceRun, RefusesWhatDoesNotFit) {
  const PreferenceRun run("{name: dpo}");
  for (const auto& [sets, says] : std::vector<std::pair<std::string, std::string>>{
           {"data.format=text", "data.format"},
           {"data.objective=labels", "data.objective"},
           {"data.loss_on=all", "data.loss_on"},
           {"train.label_smoothing=0.1", "train.label_smoothing"},
           {"train.objective.reference=nowhere", "train.objective.reference"},
           {"train.objective.name=reward", "reward does not fit a model that is trained on tokens"},
           {"parallel.vocabulary=pipeline --set parallel.pipeline=2", "parallel.vocabulary"}}) {
    const Outcome outcome = run.train("run", "--set " + sets);
    EXPECT_NE(outcome.exit_code, 0) << sets;
    EXPECT_THAT(outcome.err, HasSubstr(says)) << sets;
  }
}

}  // namespace
}  // namespace gantry::testing
