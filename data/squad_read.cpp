// Reads SQuAD-format JSON, which is untrusted input.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/data/squad.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uintmax_t kMostBytes = 1u << 30;  // the largest real file has 42 MB

constexpr std::size_t kShown = 40;  // bytes of a text in an error, truncated between code points

// The location of a value in the file. Its text is made only for an error.
struct Place {
  const Place* parent = nullptr;
  std::string_view key;   // name of a member; empty for an element of a list
  std::size_t index = 0;  // index of an element

  Place member(std::string_view name) const { return {this, name, 0}; }
  Place element(std::size_t number) const { return {this, {}, number}; }
  std::string text() const {
    if (!parent) return std::string(key);
    if (key.empty()) return fmt::format("{}[{}]", parent->text(), index);
    return fmt::format("{}{}{}", parent->text(), parent->parent ? "." : ": ", key);
  }
};

[[noreturn]] void refuse(const Place& place, const std::string& what, const std::string& expected,
                         const std::string& remedy = "") {
  throw InputError({place.text(), what, expected, remedy});
}

std::string kind(const json& value) { return fmt::format("the value is of type {}", value.type_name()); }

const json& member(const json& object, const char* key, const Place& place) {
  if (!object.is_object()) refuse(place, kind(object), "an object");
  const auto found = object.find(key);
  if (found == object.end())
    refuse(place, fmt::format("the key '{}' is missing", key), "SQuAD's format, version 1.1 or 2.0");
  return *found;
}

const json& list(const json& object, const char* key, const Place& place) {
  const json& value = member(object, key, place);
  if (!value.is_array()) refuse(place.member(key), kind(value), "a list");
  return value;
}

const std::string& text(const json& object, const char* key, const Place& place) {
  const json& value = member(object, key, place);
  if (!value.is_string()) refuse(place.member(key), kind(value), "a string");
  return value.get_ref<const std::string&>();
}

// Passes on each article of the file's "data" as soon as it is read. At any time, only one article, one other
// text and the keys of the open objects are in memory.
class Articles final : public nlohmann::json_sax<json> {
 public:
  using Take = std::function<void(const json& article, std::size_t number)>;

  Articles(const Place& file, Take take) : file_(file), take_(std::move(take)) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // text has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    check(nesting_.key(name));
    key_ = name;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    throw InputError({file_.text(), fmt::format("the file is not JSON at byte {}", position),
                      "a SQuAD-format JSON file", "download it again"});
  }

  bool has_data() const { return has_data_; }

 private:
  bool scalar(json value) {
    if (put(std::move(value)) == &article_) take_(article_, count_++);
    return true;
  }

  bool open(json value) {
    json* place = put(std::move(value));
    if (place) open_.push_back(place);
    check(nesting_.open());
    return true;
  }

  bool close() {
    nesting_.close();
    if (open_.empty()) {
      if (nesting_.depth() == 1) in_data_ = false;
      return true;
    }
    open_.pop_back();
    if (open_.empty()) take_(article_, count_++);
    return true;
  }

  void check(const std::string& fault) const {
    if (!fault.empty()) throw InputError({file_.text(), fault, "a SQuAD-format JSON file", "download it again"});
  }

  // Stores the value and returns its location; null if the value is not kept.
  json* put(json value) {
    if (!open_.empty()) {
      json& parent = *open_.back();
      if (parent.is_object()) return &(parent[key_] = std::move(value));
      parent.push_back(std::move(value));
      return &parent.back();
    }
    if (nesting_.depth() == 0 && !value.is_object()) refuse(file_, kind(value), "an object");
    if (nesting_.depth() == 1 && key_ == "data") {
      if (!value.is_array()) refuse(file_.member("data"), kind(value), "a list");
      has_data_ = in_data_ = true;
    }
    if (nesting_.depth() != 2 || !in_data_) return nullptr;
    article_ = std::move(value);
    return &article_;
  }

  const Place& file_;
  Take take_;
  JsonNesting nesting_;
  std::string key_;                          // key of the next value
  bool has_data_ = false, in_data_ = false;  // in_data_: the list "data" is open
  json article_;
  std::vector<json*> open_;  // open objects and lists: the article, then those within it
  std::size_t count_ = 0;    // number of articles
};

void read_articles(const std::string& path, const Place& place, const Articles::Take& take) {
  std::error_code failure;
  const auto size = fs::file_size(path, failure);
  if (failure) throw InputError({path, failure.message(), "a SQuAD-format JSON file", "check the path"});
  if (size > kMostBytes)
    throw InputError(
        {path, fmt::format("the file has {} bytes", size), fmt::format("at most {}", kMostBytes), "split it"});
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError({path, std::strerror(errno), "a readable file", ""});
  Articles articles(place, take);
  json::sax_parse(file, &articles);
  if (!articles.has_data()) refuse(place, "the key 'data' is missing", "SQuAD's format, version 1.1 or 2.0");
}

// A paragraph's text, with the byte at which each code point begins.
class Context {
 public:
  explicit Context(const std::string& text) : text_(std::make_shared<const std::string>(text)) {
    for (std::size_t i = 0; i < text.size(); ++i)
      if (!continues_utf8(text[i])) starts_.push_back(static_cast<std::int64_t>(i));
  }
  const std::shared_ptr<const std::string>& text() const { return text_; }
  std::size_t size() const { return starts_.size(); }  // code points
  std::int64_t byte_of(std::size_t code_point) const { return starts_[code_point]; }

 private:
  std::shared_ptr<const std::string> text_;
  std::vector<std::int64_t> starts_;
};

class Reader {
 public:
  Reader(const std::string& path, const std::function<void(SquadExample)>& take, const SquadReadOptions& options)
      : path_(path), take_(take), options_(options) {}

  SquadCounts read() {
    read_articles(path_, root_, [this](const json& article, std::size_t number) {
      const Place place = root_.member("data"), mine = place.element(number), list_place = mine.member("paragraphs");
      const json& paragraphs = list(article, "paragraphs", mine);
      for (std::size_t p = 0; p < paragraphs.size(); ++p) read_paragraph(paragraphs[p], list_place.element(p));
    });
    if (counts_.questions == 0) refuse(root_.member("data"), "there are no questions", "at least one question");
    return counts_;
  }

 private:
  void read_paragraph(const json& paragraph, const Place& place) {
    const Context context(text(paragraph, "context", place));
    const json& questions = list(paragraph, "qas", place);
    const Place questions_place = place.member("qas");
    for (std::size_t q = 0; q < questions.size(); ++q) read_question(questions[q], context, questions_place.element(q));
  }

  void read_question(const json& question, const Context& context, const Place& place) {
    SquadExample example;
    example.id = text(question, "id", place);
    example.question = text(question, "question", place);
    example.context = context.text();
    if (!ids_.insert(example.id).second)
      refuse(place.member("id"), fmt::format("the id '{}' occurs twice", example.id), "a unique id");
    if (const auto found = question.find("is_impossible"); found != question.end()) {
      if (!found->is_boolean()) refuse(place.member("is_impossible"), kind(*found), "true or false");
      example.is_impossible = found->get<bool>();
      counts_.has_impossible = true;
    }
    const json& answers = list(question, "answers", place);
    const Place answers_place = place.member("answers");
    if (example.is_impossible && !answers.empty())
      refuse(answers_place, fmt::format("there are {} answers, but is_impossible is true", answers.size()),
             "no answers");
    for (std::size_t a = 0; a < answers.size(); ++a)
      read_answer(answers[a], context, answers_place.element(a), example);
    if (!answers.empty() && example.answers.empty()) return;
    ++counts_.questions;
    take_(std::move(example));
  }

  void read_answer(const json& answer, const Context& context, const Place& place, SquadExample& example) {
    const std::string& words = text(answer, "text", place);
    const json& start = member(answer, "answer_start", place);
    const Place start_place = place.member("answer_start");
    if (!start.is_number_unsigned())
      refuse(start_place, "the value is " + start.dump(), "a count of code points, from 0");
    const auto code_point = start.get<std::uint64_t>();
    const bool is_inside = code_point < context.size();
    const auto begin = is_inside ? context.byte_of(code_point) : 0;
    const std::string_view there =
        is_inside ? std::string_view(*context.text()).substr(static_cast<std::size_t>(begin)) : std::string_view();
    if (!words.empty() && there.starts_with(words)) {
      example.answers.push_back({words, {begin, begin + static_cast<std::int64_t>(words.size())}});
      return;
    }
    if (!options_.drop_misplaced_answers) refuse_misplaced(start_place, words, code_point, context);
    ++counts_.dropped_answers;
  }

  [[noreturn]] static void refuse_misplaced(const Place& place, const std::string& words, std::uint64_t code_point,
                                            const Context& context) {
    const auto shown = [](std::string_view all) {
      return all.substr(0, utf8_start(all, std::min(all.size(), kShown)));
    };
    const std::string remedy = "correct the file; a program may set SquadReadOptions::drop_misplaced_answers";
    if (words.empty()) refuse(place, "the answer has no text", "text from the context", remedy);
    if (code_point >= context.size())
      refuse(place, fmt::format("the value is {}, but the context has {} code points", code_point, context.size()),
             "a position in the context", remedy);
    const auto there = std::string_view(*context.text()).substr(static_cast<std::size_t>(context.byte_of(code_point)));
    refuse(place, fmt::format("the value is {}, where the context has '{}'", code_point, shown(there)),
           fmt::format("the position of '{}' in code points", shown(words)), remedy);
  }

  const std::string path_;
  const Place root_{nullptr, path_, 0};
  const std::function<void(SquadExample)>& take_;
  SquadReadOptions options_;
  SquadCounts counts_;
  std::unordered_set<std::string> ids_;
};

}  // namespace

SquadCounts read_squad(const std::string& path, const std::function<void(SquadExample)>& take,
                       const SquadReadOptions& options) {
  return Reader(path, take, options).read();
}

SquadData read_squad(const std::string& path, const SquadReadOptions& options) {
  SquadData data;
  const SquadCounts counts = read_squad(
      path, [&](SquadExample example) { data.examples.push_back(std::move(example)); }, options);
  data.has_impossible = counts.has_impossible;
  data.dropped_answers = counts.dropped_answers;
  return data;
}

}  // namespace gantry
