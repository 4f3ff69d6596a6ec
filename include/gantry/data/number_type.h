// The element types of samples that LibTorch and the safetensors format share. Independent of LibTorch.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "gantry/core/error.h"

namespace gantry {

enum class NumberType { kBool, kUint8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBfloat16, kFloat32, kFloat64 };

struct NumberTypeFacts {
  NumberType type;
  const char* name;
  std::size_t bytes;
};

inline constexpr NumberTypeFacts kNumberTypes[] = {
    {NumberType::kBool, "bool", 1},       {NumberType::kUint8, "uint8", 1},       {NumberType::kInt8, "int8", 1},
    {NumberType::kInt16, "int16", 2},     {NumberType::kInt32, "int32", 4},       {NumberType::kInt64, "int64", 8},
    {NumberType::kFloat16, "float16", 2}, {NumberType::kBfloat16, "bfloat16", 2}, {NumberType::kFloat32, "float32", 4},
    {NumberType::kFloat64, "float64", 8}};

constexpr const NumberTypeFacts& facts_of(NumberType type) { return kNumberTypes[static_cast<std::size_t>(type)]; }

// The destination for the numbers of one type in a sample.
class NumberRow {
 public:
  // `numbers` is not owned.
  NumberRow(NumberType type, void* numbers) : type_(type), numbers_(numbers) {}

  NumberType type() const { return type_; }
  std::byte* bytes() const { return static_cast<std::byte*>(numbers_); }
  // Returns the destination with the C++ type of `type`: bool, std::int16_t, double, ...; c10::Half, c10::BFloat16, or
  // std::uint16_t for their bits. Throws UsageError for other types.
  template <class T>
  T* as() const {
    if (!is_written_as<T>())
      throw UsageError({"data set",
                        std::string("it writes numbers of ") + std::to_string(sizeof(T)) +
                            " bytes to an entry of type " + facts_of(type_).name,
                        "the C++ type of the entry", "check row.type()"});
    return static_cast<T*>(numbers_);
  }

 private:
  template <class T>
  bool is_written_as() const {
    const bool is_small_float = type_ == NumberType::kFloat16 || type_ == NumberType::kBfloat16;
    const bool is_float = type_ == NumberType::kFloat32 || type_ == NumberType::kFloat64;
    if (sizeof(T) != facts_of(type_).bytes) return false;
    if (is_small_float) return !std::is_integral_v<T> || std::is_unsigned_v<T>;
    if (is_float) return std::is_floating_point_v<T>;
    if (type_ == NumberType::kBool || type_ == NumberType::kUint8)
      return std::is_unsigned_v<T> && std::is_same_v<T, bool> == (type_ == NumberType::kBool);
    return std::is_integral_v<T> && std::is_signed_v<T>;
  }

  NumberType type_;
  void* numbers_;
};

}  // namespace gantry
