// Question answering on JSON in SQuAD's format, compared with Hugging Face and the official evaluation:
// tests/golden/squad.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/data/squad_answers.h"
#include "thrown_by.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const fs::path kSquadGoldens = fs::path(GANTRY_SOURCE_DIR) / "tests/golden";

json squad_golden(const std::string& name) { return json::parse(std::ifstream(kSquadGoldens / "squad" / name)); }
SquadData small_data() { return read_squad((kSquadGoldens / "squad/squad.json").string()); }
WordPiece small_tokenizer() { return WordPiece::load((kSquadGoldens / "word_piece/vocab.txt").string()); }

std::string slice(const std::string& text, ByteSpan span) { return text.substr(span.begin, span.end - span.begin); }

class File : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }
  SquadData read(const std::string& bytes, const SquadReadOptions& options = {}) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_squad(path_, options);
  }
  std::string fault(const std::string& bytes) {
    return testing::thrown_by<InputError>([&] { read(bytes); });
  }
  std::string path_ =
      (fs::path(::testing::TempDir()) / ("gantry_squad_" + std::to_string(::getpid()) + ".json")).string();
};

// Returns a file of one paragraph with the context "né Paris" and these questions.
std::string with_questions(const std::string& questions) {
  return R"({"data": [{"paragraphs": [{"context": "né Paris", "qas": [)" + questions + "]}]}]}";
}
std::string with_answer(const std::string& answer) {
  return with_questions(R"({"id": "q", "question": "?", "answers": [)" + answer + "]}");
}

TEST(Squad, ReadsBothVersions) {
  const SquadData data = small_data();
  ASSERT_EQ(data.examples.size(), 10u);
  EXPECT_TRUE(data.has_impossible);
  EXPECT_EQ(data.examples[0].context, data.examples[6].context);
  int answers = 0;
  for (const auto& example : data.examples) {
    EXPECT_EQ(example.is_impossible, example.answers.empty());
    for (const auto& answer : example.answers) {
      EXPECT_EQ(slice(*example.context, answer.span), answer.text);
      ++answers;
    }
  }
  EXPECT_EQ(answers, 11);
}

TEST_F(File, Version1HasNoImpossibleAndUnansweredQuestionsAreKept) {
  const SquadData data = read(with_questions(
      R"({"id": "a", "question": "?", "answers": [{"text": "Paris", "answer_start": 3}]},
         {"id": "b", "question": "?", "answers": [], "unknown": {"deep": [1]}})"));
  EXPECT_FALSE(data.has_impossible);
  ASSERT_EQ(data.examples.size(), 2u);
  EXPECT_EQ(data.examples[0].answers[0].span, (ByteSpan{4, 9}));
}

TEST_F(File, BadFilesAreRefusedWithTheirPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "the file is not JSON"},
      {"{\"data\": [", "the file is not JSON"},
      {"{\"data\": \"\xff\"}", "the file is not JSON"},
      {"[]", ".json: the value is of type array; expected an object"},
      {"{}", ".json: the key 'data' is missing"},
      {R"({"data": {}})", ".json: data: the value is of type object; expected a list"},
      {R"({"data": []})", ".json: data: there are no questions"},
      {R"({"data": [], "data": []})", "the key 'data' appears twice"},
      {R"({"data": [{"paragraphs": [3]}]})", ".json: data[0].paragraphs[0]: the value is of type number"},
      {R"({"data": [{"paragraphs": [{"qas": []}]}]})", "data[0].paragraphs[0]: the key 'context' is missing"},
      {R"({"data": [{"paragraphs": [{"context": null, "qas": []}]}]})",
       "paragraphs[0].context: the value is of type null"},
      {with_questions("[]"), ".json: data[0].paragraphs[0].qas[0]: the value is of type array"},
      {with_questions(R"({"id": 7})"), "qas[0].id: the value is of type number; expected a string"},
      {with_questions(R"({"id": "q", "question": "?"})"), "qas[0]: the key 'answers' is missing"},
      {with_questions(R"({"id": "q", "question": "?", "answers": [], "is_impossible": 1})"),
       "is_impossible: the value is of type"},
      {with_questions(R"({"id": "q", "question": "?", "answers": []}, {"id": "q", "question": "?", "answers": []})"),
       "qas[1].id: the id 'q' occurs twice"},
      {with_questions(R"({"id": "q", "question": "?", "answers": [{}], "is_impossible": true})"),
       "answers: there are 1 answers, but is_impossible is true"},
      {with_answer(R"({"text": "Paris"})"), "qas[0].answers[0]: the key 'answer_start' is missing"},
      {with_answer(R"({"text": "Paris", "answer_start": -1})"),
       "answers[0].answer_start: the value is -1; expected a count"},
      {with_answer(R"({"text": "Paris", "answer_start": 3.0})"), "answer_start: the value is 3.0"},
      {with_answer(R"({"text": "Paris", "answer_start": "3"})"), "answer_start: the value is \"3\""},
      {with_answer(R"({"text": "Paris", "answer_start": 8})"), "is 8, but the context has 8 code points"},
      {with_answer(R"({"text": "Paris", "answer_start": 18446744073709551615})"), "is 18446744073709551615, but"},
      {with_answer(R"({"text": "Paris", "answer_start": 4})"), "is 4, where the context has 'aris'"},
      {with_answer(R"({"text": "Paris!", "answer_start": 3})"), "expected the position of 'Paris!' in code points"},
      {with_answer(R"({"text": "", "answer_start": 3})"), "the answer has no text"},
      {std::string(100000, '['), ".json: the value is of type array"},
      {R"({"x": )" + std::string(100000, '['), "the JSON is nested deeper than 64 levels"},
      {R"({"data": [)" + std::string(100000, '['), "the JSON is nested deeper than 64 levels"},
      {with_questions(R"({"id": "q", "id": "q", "question": "?", "answers": []})"), "the key 'id' appears twice"},
      {R"({"data": [{"x": {"y": 1, "y": 2}}]})", "the key 'y' appears twice"},
      {with_answer("").substr(0, 60), "the file is not JSON"},
      {R"({"data": [true]})", ".json: data[0]: the value is of type boolean; expected an object"},
  };
  for (const auto& [bytes, want] : cases) EXPECT_THAT(fault(bytes), HasSubstr(want)) << bytes.substr(0, 200);
  EXPECT_THROW(read_squad(path_ + ".none"), InputError);
  EXPECT_THROW(read_squad(::testing::TempDir()), InputError);
}

// Returns an article with a context of its own and one question.
std::string article(int number) {
  return fmt::format(R"({{"title": "t", "paragraphs": [{{"context": "text {0}", "qas": [)"
                     R"({{"id": "q{0}", "question": "?", "answers": [{{"text": "text", "answer_start": 0}}]}}]}}]}})",
                     number);
}

TEST_F(File, ArticlesAreHandedOutOneByOneAndLetGo) {
  std::string bytes = R"({"version": ["x", {"data": [1]}], "data": [)";
  for (int i = 0; i < 50; ++i) bytes += (i == 0 ? "" : ", ") + article(i);
  std::ofstream(path_, std::ios::binary) << bytes + R"(], "more": {"data": {}}})";
  std::weak_ptr<const std::string> former;
  int taken = 0;
  const auto take = [&](const SquadExample& example) {
    EXPECT_TRUE(former.expired()) << "the article before " << example.id << " is still held";
    former = example.context;
    EXPECT_EQ(example.id, "q" + std::to_string(taken++));
  };
  EXPECT_EQ(read_squad(path_, take).questions, 50);
  // If the file ends too early, the questions before its end have already been passed on.
  std::ofstream(path_, std::ios::binary) << bytes;
  taken = 0;
  EXPECT_THROW(read_squad(path_, take), InputError);
  EXPECT_EQ(taken, 50);
}

TEST_F(File, MisplacedAnswersCanBeDropped) {
  const std::string bytes = with_questions(
      R"({"id": "a", "question": "?", "answers": [{"text": "Paris", "answer_start": 4},
                                                   {"text": "n\u00e9", "answer_start": 0}]},
         {"id": "b", "question": "?", "answers": [{"text": "x", "answer_start": 99}]})");
  const SquadData data = read(bytes, {.drop_misplaced_answers = true});
  ASSERT_EQ(data.examples.size(), 1u);
  EXPECT_EQ(data.examples[0].answers[0].span, (ByteSpan{0, 3}));
  EXPECT_EQ(data.dropped_answers, 2);
}

TEST(Squad, FeaturesEqualHuggingFace) {
  const SquadData data = small_data();
  const auto features = make_squad_features(data, small_tokenizer(), {.max_length = 32, .stride = 8});
  const json want = squad_golden("features.json");
  ASSERT_EQ(features.size(), want.size());
  for (std::size_t i = 0; i < features.size(); ++i) {
    const auto& [example, window, start, end] = features[i];
    EXPECT_EQ(data.examples[example].id, want[i]["id"]);
    EXPECT_EQ(json(window.ids), want[i]["ids"]) << i;
    EXPECT_EQ(start, want[i]["start"]) << i;
    EXPECT_EQ(end, want[i]["end"]) << i;
    if (start == 0) continue;
    const ByteSpan span{window.offsets[start].begin, window.offsets[end].end};
    EXPECT_EQ(slice(*data.examples[example].context, span), data.examples[example].answers[0].text);
  }
}

TEST(Squad, AQuestionThatLeavesNoRoomIsNamed) {
  try {
    make_squad_features(small_data(), small_tokenizer(), {.max_length = 12, .stride = 4});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("question q0: pair of texts: max_length 12 - 3 special tokens - 5"));
  }
}

// Logits of every window, computed by the given functions.
class Logits {
 public:
  template <class Start, class End>
  Logits(const std::vector<SquadFeature>& features, Start start, End end) {
    for (const auto& feature : features) {
      const std::size_t length = feature.encoding.ids.size();
      starts_.emplace_back(length), ends_.emplace_back(length);
      for (std::size_t t = 0; t < length; ++t) starts_.back()[t] = start(feature, t), ends_.back()[t] = end(feature, t);
    }
  }
  std::vector<SquadLogits> views() const {
    std::vector<SquadLogits> views;
    for (std::size_t i = 0; i < starts_.size(); ++i) views.push_back({starts_[i], ends_[i]});
    return views;
  }
  std::vector<std::vector<float>> starts_, ends_;
};

std::map<std::string, std::string> texts_of(const std::map<std::string, SquadPrediction>& predictions) {
  std::map<std::string, std::string> texts;
  for (const auto& [id, prediction] : predictions) texts[id] = prediction.text;
  return texts;
}

TEST(Squad, TheRightLogitsScore100) {
  const SquadData data = small_data();
  const auto features = make_squad_features(data, small_tokenizer(), {.max_length = 32, .stride = 8});
  const auto at = [](std::int64_t SquadFeature::*position) {
    return [=](const SquadFeature& f, std::size_t t) { return t == static_cast<std::size_t>(f.*position) ? 5.f : 0.f; };
  };
  const Logits logits(features, at(&SquadFeature::start_position), at(&SquadFeature::end_position));
  const auto predictions = predict_squad(data, features, logits.views(), {.may_be_impossible = true});
  // The logits for [CLS] in a window without the answer are as large as the logits of the answer in the
  // window that contains it.
  EXPECT_EQ(predictions.at("q6").text, "");
  EXPECT_EQ(predictions.at("q6").n_best.front().text, "");
  EXPECT_EQ(predictions.at("q3").text, "\ud55c\uad6d\uc5b4 \u4e16\u754c");
  const SquadScore score = evaluate_squad(data, texts_of(predictions));
  EXPECT_DOUBLE_EQ(score.exact, 100);
  EXPECT_DOUBLE_EQ(score.f1, 100);
  EXPECT_EQ(score.total, 10);
  const auto forced = predict_squad(data, features, logits.views(), {});
  EXPECT_EQ(forced.at("q6").text, "The");
}

TEST(Squad, PredictionsEqualAPlainSearch) {
  const SquadData data = small_data();
  const auto features = make_squad_features(data, small_tokenizer(), {.max_length = 40, .stride = 10});
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto draw = [&](const SquadFeature&, std::size_t) { return normal(random); };
  for (const std::int64_t longest : {1, 3, 30}) {
    const Logits logits(features, draw, draw);
    const auto predictions = predict_squad(data, features, logits.views(), {.n_best = 4, .max_answer_length = longest});
    for (std::size_t e = 0; e < data.examples.size(); ++e) {
      std::map<std::pair<std::int64_t, std::int64_t>, float> scores;  // the best score of each span
      for (std::size_t i = 0; i < features.size(); ++i) {
        if (features[i].example != static_cast<std::int64_t>(e)) continue;
        const Encoding& window = features[i].encoding;
        for (std::int64_t s = 0; s < 40; ++s)
          for (std::int64_t t = s; t < 40 && t - s + 1 <= longest; ++t) {
            if (s < window.second_begin || t >= window.second_end) continue;
            const auto key = std::pair(window.offsets[s].begin, window.offsets[t].end);
            const float score = logits.starts_[i][s] + logits.ends_[i][t];
            if (!scores.contains(key) || scores[key] < score) scores[key] = score;
          }
      }
      std::vector<float> best;
      for (const auto& [span, score] : scores) best.push_back(score);
      std::sort(best.rbegin(), best.rend());
      const SquadPrediction& got = predictions.at(data.examples[e].id);
      ASSERT_EQ(got.n_best.size(), 4u);
      double sum = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        const auto& span = got.n_best[k];
        EXPECT_EQ(span.score, best[k]);
        EXPECT_EQ(span.score, (scores[{span.span.begin, span.span.end}]));
        EXPECT_EQ(span.text, slice(*data.examples[e].context, span.span));
        sum += span.probability;
      }
      EXPECT_EQ(got.text, got.n_best[0].text);
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(Squad, TheNullThresholdDecides) {
  const SquadData data = small_data();
  const auto features = make_squad_features(data, small_tokenizer(), {.max_length = 96, .stride = 8});
  const auto rule = [](const SquadFeature& f, std::size_t t) {
    return t == 0 ? 2.f : static_cast<std::int64_t>(t) == f.encoding.second_begin ? 1.f : 0.f;
  };
  const Logits logits(features, rule, rule);
  const auto answer = [&](float threshold) {
    return predict_squad(data, features, logits.views(), {.may_be_impossible = true, .null_threshold = threshold})
        .at("q0");
  };
  EXPECT_EQ(answer(1.5).text, "");
  EXPECT_EQ(answer(2.0).text, "The");
  EXPECT_EQ(answer(0).null_score, 4);
}

TEST(Squad, LogitsThatDoNotFitAreRefused) {
  const SquadData data = small_data();
  const auto features = make_squad_features(data, small_tokenizer(), {.max_length = 96, .stride = 8});
  const auto zero = [](const SquadFeature&, std::size_t) { return 0.f; };
  Logits logits(features, zero, zero);
  auto views = logits.views();
  EXPECT_THROW(predict_squad(data, features, views, {.n_best = 0}), UsageError);
  views[1].end = views[1].end.first(3);
  EXPECT_THROW(predict_squad(data, features, views, {}), UsageError);
  views.pop_back();
  EXPECT_THROW(predict_squad(data, features, views, {}), UsageError);
  logits.starts_[2][5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(predict_squad(data, features, logits.views(), {}), NumericalError);
}

TEST(SquadScores, EqualTheOfficialEvaluation) {
  for (const auto& row : squad_golden("scores.json")) {
    const auto prediction = row["prediction"].get<std::string>(), truth = row["truth"].get<std::string>();
    EXPECT_EQ(normalise_answer(prediction), row["normalised"]) << prediction;
    EXPECT_EQ(exact_match(prediction, truth), row["exact"]) << prediction << " | " << truth;
    EXPECT_NEAR(f1_score(prediction, truth), row["f1"], 1e-12) << prediction << " | " << truth;
  }
}

TEST(SquadScores, TheBestOfTheAnswersCountsAndMissingOnesScoreZero) {
  const SquadData data = small_data();
  const SquadScore score = evaluate_squad(data, {{"q0", "in Paris, the"}, {"q6", ""}, {"q1", "in 1889"}});
  EXPECT_DOUBLE_EQ(score.exact, 20);
  EXPECT_NEAR(score.f1, 10 * (1 + 1 + 2.0 / 3), 1e-12);
  EXPECT_EQ(score.missing, 7);
}

}  // namespace
}  // namespace gantry
