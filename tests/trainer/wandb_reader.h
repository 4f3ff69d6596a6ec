// A reader of run-ID.wandb that shares nothing with the writer.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::testing {

inline std::uint64_t little_number(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) number = number << 8 | static_cast<unsigned char>(bytes[i - 1]);
  return number;
}

// CRC-32 of IEEE 802.3, bit by bit.
inline std::uint32_t slow_crc32(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// The records of the file, which must be complete. `lengths`: the sizes of their chunks.
inline std::vector<std::string> wandb_records(std::string_view file, std::vector<std::size_t>* lengths = nullptr) {
  constexpr std::size_t kBlockSize = 32768;
  std::vector<std::string> records;
  EXPECT_EQ(file.substr(0, 7), std::string_view(":W&B\xe1\xbe\0", 7));
  for (std::size_t at = 7; at < file.size();) {
    const std::size_t left = kBlockSize - at % kBlockSize;
    if (left < 7) {
      EXPECT_EQ(file.substr(at, left).find_first_not_of('\0'), std::string_view::npos);
      at += left;
      continue;
    }
    const auto length = static_cast<std::size_t>(little_number(file.substr(at + 4, 2)));
    const int type = file[at + 6];
    EXPECT_LE(length + 7, left);
    if (at + 7 + length > file.size()) {
      ADD_FAILURE() << "the last chunk is not complete";
      return records;
    }
    EXPECT_EQ(little_number(file.substr(at, 4)), slow_crc32(file.substr(at + 6, length + 1)));
    if (type == 1 || type == 2) records.emplace_back();
    records.back() += file.substr(at + 7, length);
    if (lengths) lengths->push_back(length);
    at += 7 + length;
  }
  return records;
}

// The fields of a message: numbers as text, and bytes as they are. Repeated fields have several values.
using ProtoFields = std::map<int, std::vector<std::string>>;

inline ProtoFields proto_fields(const std::string& message) {
  ProtoFields fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; at < message.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) break;
    }
    return value;
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    const std::uint64_t number = varint();
    const bool is_bytes = (key & 7) == 2;
    if (!is_bytes && (key & 7) != 0) ADD_FAILURE() << "a field of type " << (key & 7);
    fields[static_cast<int>(key >> 3)].push_back(is_bytes ? message.substr(at, number) : std::to_string(number));
    if (is_bytes) at += number;
  }
  return fields;
}

}  // namespace gantry::testing
