// Strict parsing of safetensors headers: a malformed header is rejected before it is used.
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <random>

#include "gantry/checkpoint/format/stored_file.h"
#include "gantry/core/error.h"
#include "program.h"
#include "thrown_by.h"

namespace gantry::testing {
namespace {

std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, 'x');
}

std::string fault_of(const std::string& bytes) {
  const ScratchFolder scratch;
  return thrown_by<InputError>([&] { StoredFile(scratch.write("hostile.safetensors", bytes)); });
}

TEST(FormatHeader, HostileOnesAreRefused) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_EQ(fault_of(with_header(good, 8)), "no error");
  const std::pair<std::string, const char*> cases[] = {
      {"", "is empty"},
      {"abc", "has 3 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), "its header has a stated length of"},
      {with_header(good, 8).substr(0, 20), "its header has a stated length of"},
      {with_header("", 0), "does not begin with '{'"},
      {with_header(" {}", 0), "does not begin with '{'"},
      {with_header("{", 0), "not JSON at byte 2"},
      {with_header(std::string("{}\0", 3), 0), "not JSON at byte 3"},  // some parsers end there
      {with_header(std::string("{}\0{\"a\":", 8), 0), "not JSON at byte 3"},
      {with_header("{\"a\":1}", 0), "does not have exactly dtype, shape and data_offsets"},
      {with_header(good, 7), "has the bytes 0 to 8 of 7"},
      {with_header(good, 9), "cover 8 of 9 bytes"},
      {with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
       "needs 12 bytes for [3], but has 8"},
      {with_header(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype \"F33\""},
      {with_header(R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype"},
      {with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "a shape that is not a list"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "has the bytes 8 to 0"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "not two counts"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-1,7]}})", 8), "not two counts"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})", 8),
       "does not have exactly dtype, shape and data_offsets"},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4),
       "hole or overlap"},
      {with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "hole or overlap"},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4),
       "the key 'a' appears twice"},
      {with_header(R"({"__metadata__":{"x":1}})", 0), "not a string"},
      {with_header(R"({"__metadata__":[]})", 0), "not an object"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8.0]}})", 8), "not two counts"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551616]}})", 8),
       "not two counts"},
      {with_header(R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8), "not a count"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2,[]],"data_offsets":[0,8]}})", 8), "not a count"},
      {with_header(R"({"a":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype \"f32\""},
      {with_header(R"({"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype null"},
      {with_header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), "does not fill whole bytes"},
      {with_header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
       "'dtype' appears twice"},
      {with_header(R"({"a":null})", 0), "does not have exactly dtype"},
      {with_header(R"([])", 0), "does not begin with '{'"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x)", 8), "not JSON"},
      {with_header("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8), "not JSON"},
      {with_header("{\"a\":" + std::string(100000, '['), 0), "nested deeper"},
      {with_header(std::string(1, '{') + std::string(1, '\0') + "}", 0), "not JSON"},
      {with_header(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 3), "cover 0 of 3 bytes"},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
           12),
       "hole or overlap at byte 4"},
      {with_header(R"({"__metadata__":null})", 0), "not an object"},
      {with_header(R"({"__metadata__":{"x":{"y":"z"}}})", 0), "not a string"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"},
      {"PK\x03\x04 and some more bytes", "the zip file has no directory"},
      {"\x80\x02}q\x01 and more bytes here", "a pickle"},
      {"<!DOCTYPE html><html></html>", "an HTML page"},
      {"\n\n <html lang=\"en\"><body>Not found</body></html>", "an HTML page"},
      {"<?xml version=\"1.0\"?><Error/>", "an XML page"},
      {"GGUF\x03\x00\x00\x00 and more", "a GGUF file"},
      {"\x89HDF\r\n\x1a\n and more", "an HDF5 file"},
  };
  for (const auto& [bytes, said] : cases)
    EXPECT_NE(fault_of(bytes).find(said), std::string::npos) << fault_of(bytes) << "\n not " << said;
}

TEST(FormatHeader, SoundOnesAreTaken) {
  for (
      const auto& [header, data] :
      {std::pair<std::string, std::size_t>{"{}", 0},
       {"{}      ", 0},
       {R"({"__metadata__":{}})", 0},
       {R"({"":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4},
       {R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", 3},
       {R"({"b":{"dtype":"I8","shape":[0,9],"data_offsets":[0,0]},"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})",
        2},
       {R"({"a\"\\\u00e9":{"data_offsets":[0,8],"shape":[2],"dtype":"F32"}})", 8}})
    EXPECT_EQ(fault_of(with_header(header, data)), "no error") << header;
}

// A file begins with the length of its header. The bytes of some lengths look like the start of a pickle.
TEST(FormatHeader, ADamagedOneIsNotTakenForAPickle) {
  const std::string start = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string fault = fault_of(with_header(start + std::string(0x0280 - start.size(), ' '), 8));
  EXPECT_NE(fault.find("not JSON"), std::string::npos) << fault;
  EXPECT_EQ(fault.find("pickle"), std::string::npos) << fault;
}

TEST(FormatHeader, EveryTypeOfTheFormatIsKnown) {
  for (const char* name : {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
                           "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
                           "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
    ASSERT_NE(find_stored_type(name), nullptr) << name;
    EXPECT_EQ(find_readable_type(find_stored_type(name)->readable), find_stored_type(name));
  }
}

double value_of(const char* type, std::initializer_list<unsigned char> bytes) {
  const std::vector<unsigned char> held(bytes);
  return stored_values(*find_stored_type(type), held)->at(0);
}

TEST(FormatHeader, SmallFloatsHaveTheirValues) {
  EXPECT_EQ(value_of("F16", {0x00, 0x3c}), 1);
  EXPECT_EQ(value_of("F16", {0xff, 0x7b}), 65504);
  EXPECT_EQ(value_of("F16", {0x01, 0x80}), -std::ldexp(1, -24));
  EXPECT_TRUE(std::isinf(value_of("F16", {0x00, 0x7c})));
  EXPECT_EQ(value_of("BF16", {0x80, 0x3f}), 1);
  EXPECT_EQ(value_of("BF16", {0xc0, 0xbf}), -1.5);
  EXPECT_TRUE(std::isnan(value_of("BF16", {0xc1, 0x7f})));
  EXPECT_EQ(value_of("F8_E4M3", {0x7e}), 448);
  EXPECT_TRUE(std::isnan(value_of("F8_E4M3", {0x7f})));
  EXPECT_EQ(value_of("F8_E5M2", {0x7b}), 57344);
  EXPECT_TRUE(std::isinf(value_of("F8_E5M2", {0xfc})));
  EXPECT_EQ(value_of("F8_E4M3FNUZ", {0x7f}), 240);
  EXPECT_TRUE(std::isnan(value_of("F8_E4M3FNUZ", {0x80})));
  EXPECT_EQ(value_of("F8_E8M0", {0x80}), 2);
  EXPECT_EQ(value_of("I16", {0xfe, 0xff}), -2);
  EXPECT_EQ(value_of("BOOL", {1}), 1);
}

// Inserts, removes and changes random bytes of a valid file. The parser must accept it or throw InputError.
TEST(FormatHeader, RandomChangesAreReadOrRefused) {
  const std::string sound = with_header(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}})",
      14);
  const std::string pieces[] = {"{",
                                "}",
                                "[",
                                "]",
                                "\"",
                                ",",
                                ":",
                                "-1",
                                "18446744073709551615",
                                "1e9",
                                "null",
                                "\"a\":",
                                "\\u0000",
                                "\"shape\":[",
                                "\x80",
                                std::string(1, '\0')};
  std::mt19937_64 random(7);
  int refused = 0;
  constexpr int kRuns = 20000;
  for (int run = 0; run < kRuns; ++run) {
    std::string bytes = sound;
    for (std::uint64_t change = 0; change <= random() % 4; ++change) {
      const std::size_t at = random() % (bytes.size() + 1);
      const auto& piece = pieces[random() % std::size(pieces)];
      const std::uint64_t kind = random() % 4;
      if (kind == 0) bytes.insert(at, piece);
      if (kind == 1 && at < bytes.size()) bytes[at] = static_cast<char>(random());
      if (kind == 2) bytes.erase(at, random() % 8);
      if (kind == 3 && at + piece.size() < bytes.size()) bytes.replace(at, piece.size(), piece);
    }
    if (random() % 2 && bytes.size() > 8) {  // correct the length, so that the parser reaches the header
      const std::uint64_t length = bytes.size() - 8 - std::min<std::size_t>(14, bytes.size() - 8);
      std::memcpy(bytes.data(), &length, 8);
    }
    try {
      const auto header = parse_safetensors_header(bytes, "fuzz");
      for (const auto& [name, tensor] : header.tensors) ASSERT_LE(header.data_start + tensor.end, bytes.size());
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kRuns / 2);
  EXPECT_LT(refused, kRuns);
}

}  // namespace
}  // namespace gantry::testing
