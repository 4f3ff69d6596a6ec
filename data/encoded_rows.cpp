#include "gantry/data/encoded_rows.h"

#include <cstring>

namespace gantry {
namespace {

constexpr std::size_t kTokensAtOnce = 1 << 18;
constexpr std::array<char, 8> kRowsMagic = {'G', 'T', 'R', 'Y', 'R', 'O', 'W', '1'};

}  // namespace

struct EncodedRows::Footer {
  std::array<char, 8> magic = kRowsMagic;
  std::uint64_t tokens = 0, records = 0, ranges = 0, note_bytes = 0;
  std::array<char, 32> hash = {};

  std::uint64_t padded_tokens() const { return tokens + tokens % 2; }  // records are aligned to 8 bytes
  std::uint64_t body_bytes() const {
    return padded_tokens() * sizeof(std::int32_t) + records * sizeof(Record) + ranges * sizeof(TokenRange) + note_bytes;
  }
};

EncodedRows::EncodedRows(MappedFile file) : file_(std::move(file)) { read(); }

template <class Entry>
std::span<const Entry> EncodedRows::entries(std::uint64_t first, std::uint64_t count) const {
  static_assert(std::is_trivially_copyable_v<Entry>);
  return {reinterpret_cast<const Entry*>(file_.bytes().data() + first), count};
}

void EncodedRows::read() {
  Footer footer;
  if (file_.size() < sizeof(footer)) return;
  const std::size_t body = file_.size() - sizeof(footer);
  std::memcpy(&footer, file_.data() + body, sizeof(footer));
  // Counts above the size would overflow the sum.
  for (const std::uint64_t count : {footer.tokens, footer.records, footer.ranges, footer.note_bytes})
    if (count > body) return;
  if (footer.magic != kRowsMagic || footer.body_bytes() != body) return;
  const std::string_view text = file_.text().substr(0, body);
  if (hash_of(text) != std::string_view(footer.hash.data(), footer.hash.size())) return;
  std::uint64_t at = 0;
  tokens_ = entries<std::int32_t>(at, footer.tokens);
  records_ = entries<Record>(at += footer.padded_tokens() * sizeof(std::int32_t), footer.records);
  ranges_ = entries<TokenRange>(at += records_.size_bytes(), footer.ranges);
  note_ = text.substr(at + ranges_.size_bytes());
  is_sound_ = true;
}

EncodedRow EncodedRows::row(std::size_t index) const {
  const Record& record = records_[index];
  const bool is_last = index + 1 == records_.size();
  const std::uint64_t tokens_end = is_last ? tokens_.size() : records_[index + 1].token,
                      ranges_end = is_last ? ranges_.size() : records_[index + 1].range;
  return {.tokens = tokens_.subspan(record.token, tokens_end - record.token),
          .ranges = ranges_.subspan(record.range, ranges_end - record.range),
          .facts = record.facts};
}

void EncodedRowsWriter::put(const void* data, std::size_t bytes) {
  hasher_.update(data, bytes);
  write_(data, bytes);
}

template <class Entry>
void EncodedRowsWriter::put_all(std::vector<Entry>& entries) {
  put(entries.data(), entries.size() * sizeof(Entry));
  entries.clear();
}

void EncodedRowsWriter::add(std::span<const std::int32_t> tokens, std::span<const TokenRange> ranges,
                            const RowFacts& facts) {
  records_.push_back({.facts = facts, .token = tokens_, .range = ranges_.size()});
  ranges_.insert(ranges_.end(), ranges.begin(), ranges.end());
  waiting_.insert(waiting_.end(), tokens.begin(), tokens.end());
  tokens_ += tokens.size();
  if (waiting_.size() >= kTokensAtOnce) put_all(waiting_);
}

void EncodedRowsWriter::finish(std::string_view note) {
  EncodedRows::Footer footer{
      .tokens = tokens_, .records = records_.size(), .ranges = ranges_.size(), .note_bytes = note.size()};
  waiting_.resize(waiting_.size() + tokens_ % 2);
  put_all(waiting_);
  put_all(records_);
  put_all(ranges_);
  put(note.data(), note.size());
  const std::string digits = hasher_.digits();
  std::memcpy(footer.hash.data(), digits.data(), footer.hash.size());
  write_(&footer, sizeof(footer));
}

}  // namespace gantry
