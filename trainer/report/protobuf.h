// The wire format of protocol buffers, as far as the files of TensorBoard and Weights & Biases need it. A message is
// the concatenation of its fields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gantry {

std::string varint_field(int field, std::uint64_t value);
std::string float_field(int field, float value);
std::string double_field(int field, double value);
// A string, bytes, or a message.
std::string bytes_field(int field, std::string_view bytes);

struct ProtobufField {
  int number = 0;
  std::uint64_t value = 0;  // a number: the varint, or the bits of the fixed32 or fixed64
  std::string_view bytes;   // a string, bytes, or a message; refers to the message that was read
};

// The fields in their order, up to the first one that is not complete.
std::vector<ProtobufField> fields_of(std::string_view message);
// The first field with this number; a field with number 0 if there is none.
ProtobufField field_of(std::string_view message, int number);

}  // namespace gantry
