// A reader of the pickles in PyTorch's files. It supports the opcodes and the globals that torch.save uses
// for a mapping of tensors, and rejects all others with an error that names them. It executes nothing.
// Without LibTorch.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gantry/checkpoint/format/stored_type.h"

namespace gantry {

struct PickleValue;
using PickleItems = std::vector<const PickleValue*>;

struct PickleNone {};
struct PickleTuple {
  PickleItems items;
};
struct PickleDict {
  PickleItems items;  // key, value, key, value, ...
};
// A name in the file, such as "torch._utils._rebuild_tensor_v2". `type`: the type of a storage or a dtype;
// null: another name.
struct PickleGlobal {
  std::string name;
  const StoredType* type = nullptr;
};
// `type` is null for a storage of bytes, whose tensors have types.
struct PickleStorage {
  std::string key;
  const StoredType* type = nullptr;
  std::int64_t elements = 0;
};
// Offset and strides are in elements.
struct PickleTensor {
  const PickleStorage* storage = nullptr;
  const StoredType* type = nullptr;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape, strides;
};

struct PickleValue {
  std::variant<PickleNone, bool, std::int64_t, double, std::string, PickleTuple, PickleDict, PickleGlobal,
               PickleStorage, PickleTensor>
      value;

  template <class Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&value);
  }
};

// The values of a pickle. The last one of `values` need not be the result.
struct Pickle {
  std::deque<PickleValue> values;
  const PickleValue* result = nullptr;
};

// Throws InputError, which names `path`, if the pickle is not a mapping as torch.save writes it, or is
// damaged or too large.
Pickle parse_pickle(std::string_view text, const std::string& path);

}  // namespace gantry
