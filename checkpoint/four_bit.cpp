#include "gantry/checkpoint/four_bit.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gantry/core/error.h"
#include "gantry/core/io/strict_json.h"
#include "gantry/tensors/double_scales.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

constexpr std::int64_t kFourBitAtOnce = std::int64_t{1} << 22;  // elements
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

struct QuantState {
  Shape shape;
  torch::ScalarType type = torch::kBFloat16;
  std::int64_t block = 0, nested_block = 0;  // elements that share a scale, and scales that share a scale
  double nested_offset = 0;
};

[[noreturn]] void refuse_state(const TensorPlace& place, const std::string& what, const std::string& expected) {
  throw InputError({place.name, what, expected, "download the file again"});
}

std::int64_t block_size(const TensorPlace& place, const json& state, const char* key) {
  const std::int64_t size = count_in(state.value(key, json())).value_or(0);
  if (size < 1)
    refuse_state(place, fmt::format("the {} is {}", key, state.value(key, json()).dump()), "a positive number");
  return size;
}

// The type of the weight before it was quantised.
torch::ScalarType original_type(const TensorPlace& place, const json& state) {
  const json name = state.value("dtype", json());
  for (const auto type : {torch::kBFloat16, torch::kFloat16, torch::kFloat32})
    if (name == dtype_name(type)) return type;
  refuse_state(place, "the dtype is " + name.dump(), "bfloat16, float16 or float32");
}

QuantState read_quant_state(const TensorPlace& place) {
  if (place.type() != torch::kUInt8)
    refuse_state(place, std::string("the quantisation state is ") + dtype_name(place.type()), "JSON in uint8");
  const torch::Tensor bytes = place.file->read(place.name);
  json state;
  const std::string_view text(reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), bytes.nbytes());
  if (const std::string fault = parse_strict(text, state); !fault.empty() || !state.is_object())
    refuse_state(
        place,
        fault.empty() ? "the quantisation state is not an object" : "the quantisation state is not valid: " + fault,
        "a JSON object");
  QuantState found{.type = original_type(place, state), .block = block_size(place, state, "blocksize")};
  const json shape = state.value("shape", json());
  if (shape.is_array())
    for (const json& size : shape) found.shape.push_back(count_in(size).value_or(0));
  const bool valid = found.shape.size() == 2 && found.shape[0] > 0 && found.shape[1] > 0 &&
                     found.shape[0] <= kMostElements / found.shape[1];
  if (!valid) refuse_state(place, "the shape is " + shape.dump(), "two positive sizes");
  if (!state.contains("nested_blocksize")) return found;
  found.nested_block = block_size(place, state, "nested_blocksize");
  const json offset = state.value("nested_offset", json());
  if (!offset.is_number()) refuse_state(place, "the nested_offset is " + offset.dump(), "a number");
  found.nested_offset = offset.get<double>();
  return found;
}

void require_real(const TensorPlace& place, std::int64_t count) {
  check_stored_shape(place, place.name, {count});
  if (!c10::isFloatingType(place.type()))
    throw InputError({place.name, std::string("the tensor is ") + dtype_name(place.type()), "real numbers",
                      "use weights with another encoding"});
}

torch::Tensor read_real(const TensorPlace& place) {
  return place.file->read(place.name).to(torch::kFloat32).contiguous();
}

class FourBitTensor : public EncodedTensor {
 public:
  explicit FourBitTensor(FourBitPlaces places) : places_(std::move(places)), state_(read_quant_state(places_.state)) {
    const std::int64_t elements = state_.shape[0] * state_.shape[1];
    check_codes(elements);
    require_real(places_.table, 16);
    const std::int64_t blocks = full_blocks(elements, state_.block);
    if (state_.nested_block == 0)
      require_real(places_.scales, blocks);
    else
      check_nested_scales(blocks);
  }

  std::string stored_name() const override { return places_.codes.name; }
  Shape shape() const override { return state_.shape; }
  torch::ScalarType type() const override { return state_.type; }
  void check(const Shape& expected) const override {
    if (state_.shape != expected)
      throw InputError(
          {places_.codes.name, fmt::format("the codes belong to a weight [{}]", fmt::join(state_.shape, ", ")),
           fmt::format("[{}]", fmt::join(expected, ", ")), "check that config.json belongs to these weights"});
  }

  torch::Tensor decode(const Range& rows) const override {
    const std::int64_t columns = state_.shape[1], end = rows.end * columns;
    const std::int64_t first_block = rows.begin * columns / state_.block;
    const torch::Tensor scales = scales_of({first_block, full_blocks(end, state_.block)});
    const torch::Tensor table = read_real(places_.table);
    const torch::Tensor codes = places_.codes.file->view(places_.codes.name).reshape({-1}).view(torch::kUInt8);
    torch::Tensor values = torch::empty({rows.size(), columns}, torch::kFloat32);
    const auto* code = codes.const_data_ptr<std::uint8_t>();
    const auto *number = table.const_data_ptr<float>(), *scale = scales.const_data_ptr<float>();
    auto* value = values.data_ptr<float>();
    for (std::int64_t i = rows.begin * columns, block = first_block; i < end; ++block, ++scale)
      for (const std::int64_t stop = std::min(end, (block + 1) * state_.block); i < stop; ++i)
        *value++ = number[i % 2 == 0 ? code[i / 2] >> 4 : code[i / 2] & 15] * *scale;
    return values;
  }
  std::optional<CodedWeight> coded(WeightCode code, const Range& rows) const override {
    if (std::string(name_of(code)) != name_of(places_.code))
      throw InputError({places_.codes.name, fmt::format("the weight is stored in {}", name_of(places_.code)),
                        fmt::format("{}, as in model.quantize", name_of(code)),
                        fmt::format("set model.quantize to {}", name_of(places_.code))});
    if (is_double(code) && state_.nested_block == 0)
      throw InputError({places_.scales.name, "the scales are stored without double quantization",
                        "codes of 8 bits, as in model.quantize_double", "remove model.quantize_double"});
    if (!torch::equal(read_real(places_.table), code_values(code)))
      throw InputError({places_.table.name, "the values of the codes are not those of bitsandbytes",
                        fmt::format("the values of {}", name_of(code)),
                        "remove model.quantize: the weights are then decoded"});
    if (is_double(code)) require_own_scale_table();
    return for_each(all_codes(code), [&](const torch::Tensor& all) { return all.narrow(0, rows.begin, rows.size()); });
  }
  std::int64_t rows_at_once() const override { return std::max<std::int64_t>(1, kFourBitAtOnce / state_.shape[1]); }

 private:
  CodedWeight all_codes(WeightCode code) const {
    const std::int64_t elements = elements_of(state_.shape);
    const torch::Tensor bytes = places_.codes.file->view(places_.codes.name).reshape({-1}).view(torch::kUInt8);
    const torch::Tensor codes = torch::stack({bytes.bitwise_right_shift(4), bytes.bitwise_and(15)}, 1);
    const auto spread = [&](const torch::Tensor& numbers, std::int64_t block) {
      return numbers.repeat_interleave(block).narrow(0, 0, elements).view(state_.shape).contiguous();
    };
    CodedWeight weight{codes.reshape({-1}).narrow(0, 0, elements).view(state_.shape).contiguous(), {}};
    if (!is_double(code)) {
      weight.scales = spread(scales_of({0, full_blocks(elements, state_.block)}), state_.block);
      return weight;
    }
    weight.scales = spread(read_real(*places_.nested_scales), state_.block * state_.nested_block);
    weight.scale_codes = spread(places_.scales.file->read(places_.scales.name), state_.block);
    weight.means = torch::full({1, 1}, state_.nested_offset, torch::kFloat32).expand(state_.shape);
    return weight;
  }

  // Files of bnb_4bit_quant_storage have the bytes as elements of a wider type.
  void check_codes(std::int64_t elements) const {
    const std::int64_t bytes =
        elements_of(places_.codes.shape()) * static_cast<std::int64_t>(c10::elementSize(places_.codes.type()));
    if (bytes != full_blocks(elements, 2))
      throw InputError({places_.codes.name,
                        fmt::format("the codes have {} bytes for a weight [{}]", bytes, fmt::join(state_.shape, ", ")),
                        fmt::format("{} bytes, two codes in each", full_blocks(elements, 2)),
                        "download the file again"});
  }

  void check_nested_scales(std::int64_t blocks) const {
    check_stored_shape(places_.scales, places_.scales.name, {blocks});
    if (places_.scales.type() != torch::kUInt8)
      throw InputError({places_.scales.name, std::string("the scales are ") + dtype_name(places_.scales.type()),
                        "uint8, because the state has nested_blocksize", "download the file again"});
    if (!places_.nested_scales || !places_.nested_table)
      throw InputError({places_.scales.name, "the scales are quantised, but their own scales or values are missing",
                        std::string(kFourBitNestedScales) + " and " + kFourBitNestedTable, "download the file again"});
    require_real(*places_.nested_scales, full_blocks(blocks, state_.nested_block));
    require_real(*places_.nested_table, 256);
  }

  // bitsandbytes computes the table on each machine, where the last bit may differ.
  void require_own_scale_table() const {
    constexpr double kLastBits = 1e-6;
    if (!torch::allclose(read_real(*places_.nested_table), scale_table(), kLastBits, 0))
      throw InputError({places_.nested_table->name, "the values of the codes are not those of bitsandbytes",
                        "its dynamic map of 8 bits", "remove model.quantize_double: the scales are then decoded"});
  }

  torch::Tensor scales_of(const Range& blocks) const {
    const torch::Tensor stored = places_.scales.file->read_slice(places_.scales.name, 0, {blocks});
    if (state_.nested_block == 0) return stored.to(torch::kFloat32).contiguous();
    const torch::Tensor nested = torch::arange(blocks.begin, blocks.end).div(state_.nested_block, "floor");
    const torch::Tensor numbers = read_real(*places_.nested_table).index_select(0, stored.to(torch::kInt64));
    // Two operations: bitsandbytes rounds the product before it adds the offset.
    const torch::Tensor scaled = numbers * read_real(*places_.nested_scales).index_select(0, nested);
    return scaled + state_.nested_offset;
  }

  FourBitPlaces places_;
  QuantState state_;
};

}  // namespace

std::unique_ptr<EncodedTensor> four_bit_tensor(FourBitPlaces places) {
  return std::make_unique<FourBitTensor>(std::move(places));
}

}  // namespace gantry
