#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/files.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"

namespace gantry {
namespace {

std::string format_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat64:
      return "F64";
    case torch::kFloat32:
      return "F32";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    case torch::kInt64:
      return "I64";
    case torch::kInt32:
      return "I32";
    case torch::kInt16:
      return "I16";
    case torch::kInt8:
      return "I8";
    case torch::kUInt8:
      return "U8";
    case torch::kBool:
      return "BOOL";
    default:
      throw UsageError(
          {"safetensors", "a " + dtype_name(type) + " tensor", "a type that the format has", "convert it first"});
  }
}

}  // namespace

void write_safetensors(const std::string& path, const TensorDict& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::vector<torch::Tensor> parts;
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    parts.push_back(tensor.detach().to(torch::kCPU).contiguous());
    const std::int64_t end = offset + static_cast<std::int64_t>(parts.back().nbytes());
    header[name] = {
        {"dtype", format_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.empty() ? "{}" : header.dump();
  while (text.size() % 8 != 0) text += ' ';

  DurableFile file(path);
  const std::uint64_t length = text.size();
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (const auto& part : parts) file.write(part.data_ptr(), part.nbytes());
  file.commit();
}

}  // namespace gantry
