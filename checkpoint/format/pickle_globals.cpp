#include "gantry/checkpoint/format/pickle_globals.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace gantry {
namespace {

constexpr const char *kOrderedDict = "collections.OrderedDict", *kTensor = "torch._utils._rebuild_tensor",
                     *kTensorV2 = "torch._utils._rebuild_tensor_v2", *kTensorV3 = "torch._utils._rebuild_tensor_v3",
                     *kParameter = "torch._utils._rebuild_parameter", *kBytes = "torch.storage.UntypedStorage";

// Names of storages and dtypes, with the names of their types here.
constexpr std::pair<const char*, const char*> kTorchTypes[] = {{"torch.DoubleStorage", "float64"},
                                                               {"torch.FloatStorage", "float32"},
                                                               {"torch.HalfStorage", "float16"},
                                                               {"torch.BFloat16Storage", "bfloat16"},
                                                               {"torch.LongStorage", "int64"},
                                                               {"torch.IntStorage", "int32"},
                                                               {"torch.ShortStorage", "int16"},
                                                               {"torch.CharStorage", "int8"},
                                                               {"torch.ByteStorage", "uint8"},
                                                               {"torch.BoolStorage", "bool"},
                                                               {"torch.ComplexFloatStorage", "complex64"},
                                                               {"torch.float8_e4m3fn", "float8_e4m3fn"},
                                                               {"torch.float8_e5m2", "float8_e5m2"},
                                                               {"torch.float8_e8m0fnu", "float8_e8m0fnu"},
                                                               {"torch.uint16", "uint16"},
                                                               {"torch.uint32", "uint32"},
                                                               {"torch.uint64", "uint64"}};

[[noreturn]] void refuse(const char* what) { throw std::invalid_argument(what); }

template <class Kind>
const Kind& argument(const PickleTuple& arguments, std::size_t index, const char* what) {
  const Kind* found = index < arguments.items.size() ? arguments.items[index]->as<Kind>() : nullptr;
  if (!found) refuse(what);
  return *found;
}

std::vector<std::int64_t> counts_of(const PickleTuple& tuple) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < tuple.items.size(); ++i)
    counts.push_back(argument<std::int64_t>(tuple, i, "a shape or stride that is not a number"));
  return counts;
}

PickleTensor tensor_of(const PickleGlobal& global, const PickleTuple& arguments) {
  PickleTensor tensor;
  tensor.storage = &argument<PickleStorage>(arguments, 0, "a tensor without a storage");
  tensor.offset = argument<std::int64_t>(arguments, 1, "a tensor without an offset");
  tensor.shape = counts_of(argument<PickleTuple>(arguments, 2, "a tensor without a shape"));
  tensor.strides = counts_of(argument<PickleTuple>(arguments, 3, "a tensor without strides"));
  tensor.type = tensor.storage->type;
  if (global.name == kTensorV3) tensor.type = argument<PickleGlobal>(arguments, 6, "a tensor without a dtype").type;
  if (!tensor.type) refuse("a tensor without a dtype");
  return tensor;
}

}  // namespace

std::optional<PickleGlobal> known_pickle_global(const std::string& name) {
  for (const char* known : {kOrderedDict, kTensor, kTensorV2, kTensorV3, kParameter, kBytes})
    if (name == known) return PickleGlobal{name};
  for (const auto& [known, type] : kTorchTypes)
    if (name == known) return PickleGlobal{name, find_readable_type(type)};
  return std::nullopt;
}

PickleValue call_pickle_global(const PickleGlobal& global, const PickleTuple& arguments) {
  if (global.name == kOrderedDict) {
    if (!arguments.items.empty()) refuse("an OrderedDict with arguments");
    return {PickleDict{}};
  }
  if (global.name == kTensor || global.name == kTensorV2 || global.name == kTensorV3)
    return {tensor_of(global, arguments)};
  if (global.name == kParameter) return {argument<PickleTensor>(arguments, 0, "a parameter without a tensor")};
  refuse("a call of something that is not a function");
}

PickleStorage pickle_storage(const PickleTuple& id) {
  if (argument<std::string>(id, 0, "a persistent id that is not a tuple of texts") != "storage")
    refuse("a persistent id that is not a storage");
  const auto& kind = argument<PickleGlobal>(id, 1, "a storage without a type");
  if (!kind.type && kind.name != kBytes) refuse("a storage without a type");
  return {.key = argument<std::string>(id, 2, "a storage without a key"),
          .type = kind.type,
          .elements = argument<std::int64_t>(id, 4, "a storage without a size")};
}

}  // namespace gantry
