#include <utility>

#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/safetensors_header.h"
#include "gantry/checkpoint/format/stored_type.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

constexpr std::pair<torch::ScalarType, std::string_view> kTypes[] = {{torch::kFloat64, "F64"},
                                                                     {torch::kFloat32, "F32"},
                                                                     {torch::kFloat16, "F16"},
                                                                     {torch::kBFloat16, "BF16"},
                                                                     {at::ScalarType::Float8_e4m3fn, "F8_E4M3"},
                                                                     {at::ScalarType::Float8_e5m2, "F8_E5M2"},
                                                                     {at::ScalarType::Float8_e8m0fnu, "F8_E8M0"},
                                                                     {at::ScalarType::Float8_e4m3fnuz, "F8_E4M3FNUZ"},
                                                                     {at::ScalarType::Float8_e5m2fnuz, "F8_E5M2FNUZ"},
                                                                     {at::ScalarType::ComplexFloat, "C64"},
                                                                     {torch::kInt64, "I64"},
                                                                     {torch::kInt32, "I32"},
                                                                     {torch::kInt16, "I16"},
                                                                     {torch::kInt8, "I8"},
                                                                     {at::ScalarType::UInt64, "U64"},
                                                                     {at::ScalarType::UInt32, "U32"},
                                                                     {at::ScalarType::UInt16, "U16"},
                                                                     {torch::kUInt8, "U8"},
                                                                     {torch::kBool, "BOOL"}};

std::string header_of(const TensorDict& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensorShape> shapes;
  for (const auto& [name, tensor] : tensors)
    shapes.push_back({name, &stored_type_of(tensor.scalar_type()), tensor.sizes().vec()});
  return make_safetensors_header(shapes, metadata);
}

template <class File>
void write_all(File& file, const TensorDict& tensors, const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  file.write(header.data(), header.size());
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor full = tensor.detach().to(torch::kCPU).contiguous();
    if (full.nbytes() > 0) file.write(full.data_ptr(), full.nbytes());
  }
}

}  // namespace

torch::ScalarType scalar_type_of(const StoredType& stored, const std::string& where) {
  for (const auto& [type, name] : kTypes)
    if (name == stored.name) return type;
  throw InputError(
      {where, "the tensor is " + std::string(stored.readable), "a type that LibTorch supports", "convert it first"});
}

const StoredType& stored_type_of(torch::ScalarType scalar) {
  for (const auto& [type, name] : kTypes)
    if (type == scalar) return *find_stored_type(name);
  throw UsageError(
      {"safetensors", "the tensor is " + dtype_name(scalar), "a type that the format supports", "convert it first"});
}

void write_tensors(HashedFile& file, const TensorDict& tensors, const std::map<std::string, std::string>& metadata) {
  write_all(file, tensors, metadata);
}

void write_safetensors(const std::string& path, const TensorDict& tensors,
                       const std::map<std::string, std::string>& metadata, FileSystem& files) {
  DurableFile file(path, files);
  write_all(file, tensors, metadata);
  file.commit();
}

}  // namespace gantry
