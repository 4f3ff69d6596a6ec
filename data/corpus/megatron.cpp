#include "gantry/data/corpus/megatron.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26, kHeader = 34;
constexpr std::size_t kLengthBytes = 4, kPlaceBytes = 8, kDocumentBytes = 8;

struct TypeInfo {
  const char* name;
  std::int64_t bytes;
};
constexpr TypeInfo kTypes[] = {{"uint8", 1}, {"int8", 1},    {"int16", 2},   {"int32", 4},
                               {"int64", 8}, {"float64", 8}, {"float32", 4}, {"uint16", 2}};

const TypeInfo& info(TokenType type) { return kTypes[static_cast<int>(type) - 1]; }

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t at) {  // the index is not aligned
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::filesystem::path with_extension(const std::string& prefix, const char* extension) {
  const bool has_one = prefix.ends_with(".bin") || prefix.ends_with(".idx");
  return (has_one ? prefix.substr(0, prefix.size() - 4) : prefix) + extension;
}

template <class T>
void copy_tokens(std::span<const std::byte> bytes, std::size_t at, std::int64_t count, std::int64_t* tokens) {
  for (std::int64_t i = 0; i < count; ++i)
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): a byte is a number here
    tokens[i] = static_cast<std::int64_t>(value_at<T>(bytes, at + static_cast<std::size_t>(i) * sizeof(T)));
}

template <class T>
void copy_whole_numbers(const MappedFile& data, std::size_t at, std::int64_t count, std::int64_t* tokens) {
  constexpr double kMost = 1LL << 53;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t place = at + static_cast<std::size_t>(i) * sizeof(T);
    const double value = value_at<T>(data.bytes(), place);
    if (!(std::abs(value) <= kMost) || value != std::floor(value))
      throw InputError(
          {data.path().string(), fmt::format("the value is {} at byte {}", value, place), "a token id", ""});
    tokens[i] = static_cast<std::int64_t>(value);
  }
}

}  // namespace

std::string token_type_name(TokenType type) { return info(type).name; }
std::int64_t token_type_bytes(TokenType type) { return info(type).bytes; }
TokenType token_type_for(std::int64_t vocabulary_size) {
  return vocabulary_size < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

MegatronIndex::MegatronIndex(std::span<const std::byte> bytes, std::string path, std::int64_t data_bytes,
                             const std::string& data_name)
    : bytes_(bytes), path_(std::move(path)) {
  check_header();
  check_sequences(data_bytes, data_name);
  check_documents();
}

void MegatronIndex::check_header() {
  const auto& bytes = bytes_;
  const auto& path = path_;
  const bool is_index = bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
  if (!is_index || bytes.size() < kHeader)
    throw InputError({path,
                      is_index
                          ? fmt::format("the file ends after {} of the {} bytes of its header", bytes.size(), kHeader)
                          : fmt::format("the file has {} bytes and does not begin with MMIDIDX", bytes.size()),
                      "an index of Megatron", "create it with gantry data build or Megatron's preprocess_data.py"});
  if (const auto version = value_at<std::uint64_t>(bytes, kVersionAt); version != kVersion)
    throw InputError({path, fmt::format("the file has version {}", version), "1", ""});
  const auto type = value_at<std::uint8_t>(bytes, kTypeAt);
  if (type < 1 || type > std::size(kTypes))
    throw InputError({path, fmt::format("the token type is {}", type), fmt::format("1 to {}", std::size(kTypes)), ""});
  type_ = static_cast<TokenType>(type);
  const auto sequences = value_at<std::uint64_t>(bytes, kSequencesAt);
  const auto documents = value_at<std::uint64_t>(bytes, kDocumentsAt);
  // No product of these overflows once each is known to fit into the file.
  const std::size_t room = bytes.size() - kHeader;
  const bool fits = sequences <= room / (kLengthBytes + kPlaceBytes) && documents <= room / kDocumentBytes;
  const std::size_t plain = fits ? sequences * (kLengthBytes + kPlaceBytes) + documents * kDocumentBytes : 0;
  if (!fits || (room != plain && room != plain + sequences))
    throw InputError(
        {path,
         fmt::format("the file has {} bytes, but states {} sequences and {} document indices", bytes.size(), sequences,
                     documents),
         fmt::format("{} + 12 per sequence + 8 per document index, and 1 per sequence with modes", kHeader),
         "create it again"});
  has_modes_ = room != plain;
  lengths_at_ = kHeader;
  places_at_ = lengths_at_ + sequences * kLengthBytes;
  documents_at_ = places_at_ + sequences * kPlaceBytes;
  documents_ = static_cast<std::int64_t>(documents) - 1;
  boundaries_.resize(sequences + 1);
}

std::int64_t MegatronIndex::place(std::int64_t sequence) const {
  return value_at<std::int64_t>(bytes_, places_at_ + static_cast<std::size_t>(sequence) * kPlaceBytes);
}

void MegatronIndex::check_sequences(std::int64_t data_bytes, const std::string& data_name) {
  for (std::int64_t s = 0; s < sequences(); ++s) {
    const auto length = value_at<std::int32_t>(bytes_, lengths_at_ + static_cast<std::size_t>(s) * kLengthBytes);
    const std::int64_t at = place(s), size = length * token_type_bytes(type_);
    if (length < 0 || at < 0 || at > data_bytes || size > data_bytes - at)
      throw InputError({path_,
                        fmt::format("sequence {} has {} tokens of {} at byte {}, but {} has {} bytes", s, length,
                                    token_type_name(type_), at, data_name, data_bytes),
                        "a position within the file",
                        "create both files again, because they do not belong together or are truncated"});
    if (__builtin_add_overflow(boundaries_[s], length, &boundaries_[s + 1]))
      throw InputError({path_, fmt::format("there are 2^63 tokens or more at sequence {}", s), "fewer tokens", ""});
  }
}

std::int64_t MegatronIndex::document_begin(std::int64_t document) const {
  return value_at<std::int64_t>(bytes_, documents_at_ + static_cast<std::size_t>(document) * kDocumentBytes);
}

// Returns the last document that begins at or before the sequence, which skips empty ones at the same
// position.
std::int64_t MegatronIndex::document_of(std::int64_t sequence) const {
  std::int64_t first = 0, behind = documents_;
  while (behind - first > 1) {
    const std::int64_t middle = first + (behind - first) / 2;
    (document_begin(middle) <= sequence ? first : behind) = middle;
  }
  return first;
}

void MegatronIndex::check_documents() const {
  const auto& path = path_;
  if (documents_ < 0)
    throw InputError({path, "the index has no document indices", "at least one document index, 0", ""});
  std::int64_t before = 0;
  for (std::int64_t d = 0; d <= documents_; ++d) {
    const std::int64_t begin = document_begin(d);
    if (begin < before || begin > sequences() || (d == 0 && begin != 0))
      throw InputError({path, fmt::format("document index {} is {}", d, begin),
                        d == 0 ? "0" : fmt::format("{} to {}", before, sequences()), ""});
    before = begin;
  }
  if (before != sequences())
    throw InputError({path, fmt::format("the last document index is {}", before),
                      fmt::format("the number of sequences, {}", sequences()), ""});
}

MegatronFiles::MegatronFiles(const std::string& prefix)
    : index_file_(with_extension(prefix, ".idx")),
      data_(with_extension(prefix, ".bin")),
      index_(index_file_.bytes(), index_file_.path().string(), static_cast<std::int64_t>(data_.bytes().size()),
             data_.path().filename().string()) {}

void MegatronFiles::read(std::int64_t sequence, std::int64_t offset, std::int64_t count, std::int64_t* tokens) const {
  const bool is_sequence = sequence >= 0 && sequence < sequences();
  if (!is_sequence || offset < 0 || count < 0 || offset > length(sequence) || count > length(sequence) - offset)
    throw UsageError(
        {data_.path().string(), fmt::format("{} tokens from {} of sequence {} do not exist", count, offset, sequence),
         is_sequence ? fmt::format("tokens within its {}", length(sequence)) : "a sequence of the files", ""});
  const auto at = static_cast<std::size_t>(index_.place(sequence) + offset * token_type_bytes(type()));
  switch (type()) {
    case TokenType::kUint8:
      return copy_tokens<std::uint8_t>(data_.bytes(), at, count, tokens);
    case TokenType::kInt8:
      return copy_tokens<std::int8_t>(data_.bytes(), at, count, tokens);
    case TokenType::kInt16:
      return copy_tokens<std::int16_t>(data_.bytes(), at, count, tokens);
    case TokenType::kInt32:
      return copy_tokens<std::int32_t>(data_.bytes(), at, count, tokens);
    case TokenType::kInt64:
      return copy_tokens<std::int64_t>(data_.bytes(), at, count, tokens);
    case TokenType::kFloat64:
      return copy_whole_numbers<double>(data_, at, count, tokens);
    case TokenType::kFloat32:
      return copy_whole_numbers<float>(data_, at, count, tokens);
    case TokenType::kUint16:
      return copy_tokens<std::uint16_t>(data_.bytes(), at, count, tokens);
  }
}

}  // namespace gantry
