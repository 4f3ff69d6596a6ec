#include "gantry/data/tokenizers/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <unordered_map>

#include "gantry/core/base/base64.h"
#include "gantry/core/base/utf8.h"
#include "gantry/core/error.h"
#include "gantry/data/tokenizers/json_file.h"
#include "gantry/data/tokenizers/vocabulary.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostTokenBytes = 512;  // published files have up to 128; every split of a token is looked up
constexpr std::size_t kShownLineBytes = 60;   // bytes of a line in an error
constexpr const char* kAgain = "download the file again";

struct RankLine {
  std::string token;
  std::uint32_t rank = 0;
  std::size_t number = 0;  // line number, from 1
};

struct LineFields {
  std::string_view token, rank;
};

// `line` without the blanks at its ends. An empty rank: the line has one field.
LineFields fields_of(std::string_view line) {
  constexpr const char* kBlanks = " \t\r";
  const std::size_t begin = std::min(line.find_first_not_of(kBlanks), line.size());
  line = line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
  const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
  return {line.substr(0, end), line.substr(std::min(line.find_first_not_of(kBlanks, end), line.size()))};
}

bool parse_rank(std::string_view text, std::uint32_t& rank) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() && end == text.data() + text.size();
}

RankLine parse_rank_line(const LineFields& fields, std::size_t number, const fs::path& path) {
  const std::string place = fmt::format("{}:{}", path.string(), number);
  const auto shown = [](std::string_view field) { return valid_utf8(field.substr(0, kShownLineBytes)); };
  RankLine line{.number = number};
  if (!parse_rank(fields.rank, line.rank))
    throw InputError({place, fmt::format("the rank is '{}'", shown(fields.rank)),
                      "the token's bytes in base64, a space and the token's rank", kAgain});
  const auto token = decode_base64(fields.token);
  if (!token || encode_base64(*token) != fields.token)
    throw InputError({place, fmt::format("the token '{}' is not base64", shown(fields.token)),
                      "the token's bytes in base64, a space and the token's rank", kAgain});
  if (token->size() > kMostTokenBytes)
    throw InputError({place, fmt::format("the token has {} bytes", token->size()),
                      fmt::format("a token of 1 to {} bytes", kMostTokenBytes), ""});
  line.token = *token;
  return line;
}

// Sorts the lines by rank. The ranks must be 0 to n - 1.
void sort_ranks(std::vector<RankLine>& lines, const fs::path& path) {
  std::ranges::stable_sort(lines, {}, &RankLine::rank);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string place = fmt::format("{}:{}", path.string(), lines[i].number);
    if (lines[i].rank < i)
      throw InputError({place, fmt::format("the rank {} is also in line {}", lines[i].rank, lines[i - 1].number),
                        "each rank once", kAgain});
    if (lines[i].rank > i)
      throw InputError({place, fmt::format("the rank is {}, but no line has the rank {}", lines[i].rank, i),
                        "ranks without gaps", kAgain});
  }
}

void require_tokens_of_bytes(const std::vector<RankLine>& lines, const fs::path& path) {
  std::unordered_map<std::string_view, std::size_t> numbers;
  for (const RankLine& line : lines)
    if (const auto [known, is_new] = numbers.emplace(line.token, line.number); !is_new)
      throw InputError({fmt::format("{}:{}", path.string(), std::max(line.number, known->second)),
                        fmt::format("the token is also in line {}", std::min(line.number, known->second)),
                        "each token once", kAgain});
  for (int byte = 0; byte < 256; ++byte)
    if (const char c = static_cast<char>(byte); !numbers.contains({&c, 1}))
      throw InputError({path.string(), fmt::format("no line has the token of the byte 0x{:02X}", byte),
                        "a token for each of the 256 bytes", kAgain});
}

}  // namespace

bool is_tiktoken_file(const fs::path& path) {
  if (path.extension() == ".tiktoken") return true;
  std::string start(2 * kMostTokenBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  const LineFields fields = fields_of(std::string_view(start).substr(0, start.find('\n')));
  std::uint32_t rank = 0;
  return parse_rank(fields.rank, rank);
}

std::vector<std::string> read_tiktoken_file(const fs::path& path) {
  const std::string bytes = read_bytes(path, kMostTokenizerBytes);
  std::vector<RankLine> lines;
  for (std::size_t at = 0, number = 1; at < bytes.size(); ++number) {
    const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
    const LineFields fields = fields_of(std::string_view(bytes).substr(at, end - at));
    if (!fields.token.empty()) lines.push_back(parse_rank_line(fields, number, path));
    at = end + 1;
  }
  sort_ranks(lines, path);
  require_tokens_of_bytes(lines, path);
  std::vector<std::string> tokens;
  tokens.reserve(lines.size());
  for (RankLine& line : lines) tokens.push_back(std::move(line.token));
  return tokens;
}

}  // namespace gantry
