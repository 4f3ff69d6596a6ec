#include "gantry/checkpoint/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

std::string scratch(const std::string& name) {
  return ::testing::TempDir() + "/gantry_" + std::to_string(::getpid()) + "_" + name;
}

std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data, 'x');
}

std::string fault_of(const std::string& bytes) {
  const std::string path = scratch("hostile.safetensors");
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    SafetensorsFile file(path);
  } catch (const InputError& error) {
    std::filesystem::remove(path);
    return error.what();
  }
  std::filesystem::remove(path);
  return "no error";
}

TEST(Safetensors, RoundTripsEveryDtypeAndShape) {
  const std::string path = scratch("round.safetensors");
  TensorDict tensors;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kInt64,
                          torch::kInt32, torch::kUInt8, torch::kBool})
    tensors.set(dtype_name(type), torch::arange(12).view({3, 4}).to(type));
  tensors.set("scalar", torch::tensor(3.5));
  tensors.set("empty", torch::empty({0, 7}));
  tensors.set("turned", torch::arange(6).view({2, 3}).t());
  write_safetensors(path, tensors, {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(torch::equal(file.read(name), tensor)) << name;
  EXPECT_TRUE(torch::equal(file.read_slice("float64", 1, {{0, 1}, {3, 4}}),
                           torch::tensor({{0., 3.}, {4., 7.}, {8., 11.}}, torch::kFloat64)));
  std::filesystem::remove(path);
}

TEST(Safetensors, HostileFilesAreRefused) {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_EQ(fault_of(with_header(good, 8)), "no error");
  const std::pair<std::string, const char*> cases[] = {
      {"", "is empty"},
      {"abc", "has 3 bytes"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8), "says its header has"},
      {with_header(good, 8).substr(0, 20), "says its header has"},
      {with_header("", 0), "does not begin with '{'"},
      {with_header(" {}", 0), "does not begin with '{'"},
      {with_header("{", 0), "no JSON at byte 2"},
      {with_header("{\"a\":1}", 0), "does not have dtype, shape and data_offsets"},
      {with_header(good, 7), "lies at 0 to 8 of 7 bytes"},
      {with_header(good, 9), "cover 8 of 9 bytes"},
      {with_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "needs 12 bytes for [3] and has 8"},
      {with_header(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype \"F33\""},
      {with_header(R"({"a":{"dtype":4,"shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype"},
      {with_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]}})", 8), "overflows"},
      {with_header(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "no list"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "lies at 8 to 0"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "not two counts"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-1,7]}})", 8), "not two counts"},
      {with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})", 8), "alone"},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4),
       "hole or overlap"},
      {with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "hole or overlap"},
      {with_header(
           R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4),
       "the key 'a' twice"},
      {with_header(R"({"__metadata__":{"x":1}})", 0), "no string"},
      {with_header(R"({"__metadata__":[]})", 0), "no object"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"},
      {"PK\x03\x04 and some more bytes", "zip archive"},
      {"\x80\x02}q\x01 and more bytes here", "a pickle"},
      {"<!DOCTYPE html><html></html>", "an HTML page"},
  };
  for (const auto& [bytes, said] : cases)
    EXPECT_NE(fault_of(bytes).find(said), std::string::npos) << fault_of(bytes) << "\n not " << said;
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string path = scratch("cut.safetensors");
  write_safetensors(path, {{"a", torch::arange(5)}, {"b", torch::ones({2, 2})}});
  std::ifstream file(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(fault_of(whole.substr(0, length)), "no error") << length;
  std::filesystem::remove(path);
}

TEST(Safetensors, UnwritablePathsAreAResourceError) {
  EXPECT_THROW(write_safetensors("/nonexistent/x", {{"a", torch::ones({1})}}), ResourceError);
}

}  // namespace
}  // namespace gantry
