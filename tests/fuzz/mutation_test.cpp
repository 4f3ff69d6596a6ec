// Runs every fuzz target on its corpus and on a fixed number of reproducible mutations. `./dev fuzz` runs
// longer, with libFuzzer and sanitizers.
#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "program.h"
#include "targets.h"

namespace gantry::fuzz {
namespace {

constexpr int kMutations = 20000;  // per target

// The contents of the files in an archive of `./dev fuzz`. In this format (POSIX ustar), a block of 512 bytes
// before each file has its name and size, and its contents are padded to full blocks.
std::vector<std::string> unpacked(const std::string& archive) {
  constexpr std::size_t kBlock = 512, kSizeAt = 124, kTypeAt = 156;
  std::vector<std::string> texts;
  for (std::size_t at = 0; at + kBlock <= archive.size() && archive[at] != '\0';) {
    const std::size_t size = std::stoull(archive.substr(at + kSizeAt, 12), nullptr, 8);
    EXPECT_EQ(archive[at + kTypeAt], '0') << archive.c_str() + at << " is no regular file";
    EXPECT_LE(at + kBlock + size, archive.size()) << "the archive is cut short";
    texts.push_back(archive.substr(at + kBlock, size));
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
  return texts;
}

std::vector<std::string> corpus(const std::string& target) {
  return unpacked(testing::read_file(GANTRY_SOURCE_DIR "/tests/fuzz/corpus/" + target + ".tar"));
}

// Makes mutations: flips bits, sets bytes to edge values, removes or doubles bytes, truncates, and inserts
// bytes of another file or special strings such as large numbers.
class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>& texts) : texts_(texts), random_(20261121) {}

  std::string next() {
    std::string text = texts_[below(texts_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    return text;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(std::string& text) {
    static const std::string kPieces[] = {"-1",
                                          "18446744073709551615",
                                          "9223372036854775807",
                                          "1e999",
                                          "null",
                                          "[",
                                          "{",
                                          "}",
                                          "\"",
                                          "../x",
                                          "/etc",
                                          "\xff\xff\xff\xff",
                                          "NaN",
                                          "4294967296",
                                          "[[[[[[[[",
                                          "\\u0000",
                                          ",",
                                          std::string(8, '\0'),
                                          "true",
                                          std::string(300, '9')};
    const std::size_t at = below(text.size() + 1), length = std::min(below(16), text.size() - at);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = "\0\x01\x7f\x80\xff"[below(5)];
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      case 4:
        text.resize(at);
        break;
      case 5: {
        const std::string& other = texts_[below(texts_.size())];
        text.insert(at, other.substr(below(other.size() + 1), 30));
        break;
      }
      default:
        text.insert(at, kPieces[below(std::size(kPieces))]);
    }
  }

  const std::vector<std::string>& texts_;
  std::mt19937_64 random_;
};

class Readers : public ::testing::TestWithParam<Target> {};

TEST_P(Readers, TakeOrRefuseTheCorpusAndItsMutations) {
  const auto texts = corpus(GetParam().name);
  ASSERT_FALSE(texts.empty());
  int accepted = 0, refused = 0;
  const auto run = [&](const std::string& text) {
    try {
      GetParam().run(text) ? ++accepted : ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << ::testing::PrintToString(text.substr(0, 2000));
    }
  };
  for (const auto& text : texts) run(text);
  EXPECT_GT(accepted, 0) << "the corpus has no sound file";
  Mutator mutator(texts);
  for (int i = 0; i < kMutations && !HasFailure(); ++i) run(mutator.next());
  EXPECT_GT(refused, kMutations / 10);
}

INSTANTIATE_TEST_SUITE_P(All, Readers, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gantry::fuzz
