#include "gantry/checkpoint/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"
#include "thrown_by.h"

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
  const std::string fault = testing::thrown_by<InputError>([&] { SafetensorsFile file(path); });
  std::filesystem::remove(path);
  return fault;
}

TEST(Safetensors, RoundTripsEveryDtypeAndShape) {
  const std::string path = scratch("round.safetensors");
  TensorDict tensors;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kInt64,
                          torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt8, torch::kBool,
                          at::ScalarType::UInt16, at::ScalarType::UInt32, at::ScalarType::UInt64,
                          at::ScalarType::Float8_e4m3fn, at::ScalarType::Float8_e5m2, at::ScalarType::ComplexFloat})
    tensors.set(dtype_name(type), torch::arange(12).view({3, 4}).to(torch::kFloat32).to(type));
  tensors.set("scalar", torch::tensor(3.5));
  tensors.set("empty", torch::empty({0, 7}));
  tensors.set("turned", torch::arange(6).view({2, 3}).t());
  write_safetensors(path, tensors, {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor read = file.read(name), full = tensor.contiguous();
    ASSERT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(read.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(std::memcmp(read.data_ptr(), full.data_ptr(), full.nbytes()), 0) << name;
  }
  EXPECT_TRUE(torch::equal(file.read_slice("float64", 1, {{0, 1}, {3, 4}}),
                           torch::tensor({{0., 3.}, {4., 7.}, {8., 11.}}, torch::kFloat64)));
  std::filesystem::remove(path);
}

// A one-byte tensor in front of a float: its bytes are at an odd address.
TEST(Safetensors, ReadsTensorsThatAreNotAligned) {
  const std::string path = scratch("odd.safetensors");
  std::string bytes = with_header(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}} )",
      1);
  const float values[] = {1.5, -2};
  bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
  std::ofstream(path, std::ios::binary) << bytes;
  const SafetensorsFile file(path);
  EXPECT_TRUE(torch::equal(file.read("b"), torch::tensor({1.5f, -2.f})));
  EXPECT_TRUE(torch::equal(file.read_slice("b", 0, {{1, 2}}), torch::tensor({-2.f})));
  std::filesystem::remove(path);
}

TEST(Safetensors, TypesThatLibTorchHasNotAreNamed) {
  const std::string path = scratch("f6.safetensors");
  std::ofstream(path, std::ios::binary) << with_header(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})",
                                                       3);
  const SafetensorsFile file(path);
  try {
    file.read("a");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("float6_e2m3"), std::string::npos) << error.what();
  }
  std::filesystem::remove(path);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string path = scratch("cut.safetensors");
  write_safetensors(path, {{"a", torch::arange(5)}, {"b", torch::ones({2, 2})}});
  std::ifstream file(path, std::ios::binary);
  const std::string full((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (std::size_t length = 0; length < full.size(); ++length)
    EXPECT_NE(fault_of(full.substr(0, length)), "no error") << length;
  std::filesystem::remove(path);
}

TEST(Safetensors, UnwritablePathsAreAResourceError) {
  EXPECT_THROW(write_safetensors("/nonexistent/x", {{"a", torch::ones({1})}}), ResourceError);
}

}  // namespace
}  // namespace gantry
