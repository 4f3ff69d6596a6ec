#include "gantry/trainer/report/protobuf.h"

#include <bit>
#include <optional>

#include "gantry/trainer/report/little_endian.h"

namespace gantry {
namespace {

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

std::string field_key(int field, WireType type) { return varint(static_cast<std::uint64_t>(field) << 3 | type); }

// Each returns nothing if the rest of the message is too short; otherwise it removes what it has read.
std::optional<std::uint64_t> take_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < rest.size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(rest[i]);
    value |= static_cast<std::uint64_t>(byte & 127) << (7 * i);
    if (byte < 128) {
      rest.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> take_bytes(std::string_view& rest, std::uint64_t size) {
  if (size > rest.size()) return std::nullopt;
  const auto bytes = rest.substr(0, size);
  rest.remove_prefix(size);
  return bytes;
}

std::optional<std::uint64_t> take_fixed(std::string_view& rest, std::size_t size) {
  const auto bytes = take_bytes(rest, size);
  if (!bytes) return std::nullopt;
  return size == 4 ? number_from<std::uint32_t>(*bytes) : number_from<std::uint64_t>(*bytes);
}

std::optional<ProtobufField> take_field(std::string_view& rest) {
  const auto key = take_varint(rest);
  if (!key || (*key >> 3) == 0 || (*key >> 3) > (1u << 29)) return std::nullopt;
  ProtobufField field{.number = static_cast<int>(*key >> 3), .bytes = {}};
  const auto type = static_cast<WireType>(*key & 7);
  if (type == kBytes) {
    const auto size = take_varint(rest);
    const auto bytes = size ? take_bytes(rest, *size) : std::nullopt;
    if (!bytes) return std::nullopt;
    field.bytes = *bytes;
    return field;
  }
  if (type != kVarint && type != kFixed64 && type != kFixed32) return std::nullopt;
  const auto value = type == kVarint ? take_varint(rest) : take_fixed(rest, type == kFixed64 ? 8 : 4);
  if (!value) return std::nullopt;
  field.value = *value;
  return field;
}

}  // namespace

std::string varint_field(int field, std::uint64_t value) { return field_key(field, kVarint) + varint(value); }

std::string float_field(int field, float value) {
  return field_key(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

std::string double_field(int field, double value) {
  return field_key(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string bytes_field(int field, std::string_view bytes) {
  return field_key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::vector<ProtobufField> fields_of(std::string_view message) {
  std::vector<ProtobufField> fields;
  while (const auto field = take_field(message)) fields.push_back(*field);
  return fields;
}

ProtobufField field_of(std::string_view message, int number) {
  while (const auto field = take_field(message))
    if (field->number == number) return *field;
  return {};
}

}  // namespace gantry
