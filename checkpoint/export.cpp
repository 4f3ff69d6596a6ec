#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/checkpoint/checkpoint_files.h"
#include "gantry/checkpoint/exported_tensor.h"
#include "gantry/checkpoint/format/companion_files.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/model_files.h"
#include "gantry/checkpoint/format/rope_spellings.h"
#include "gantry/checkpoint/format/staged_files.h"
#include "gantry/checkpoint/format/verify.h"
#include "gantry/checkpoint/hugging_face.h"
#include "gantry/checkpoint/quantized_export.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/checkpoint/stored_names.h"
#include "gantry/checkpoint/stored_parts.h"
#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/models/decoder_model_family.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

using nlohmann::json;

struct Shard {
  std::vector<const ExportTensor*> tensors;
  std::uint64_t bytes = 0;
};

torch::ScalarType type_of(const ExportTensor& tensor, const ExportOptions& options) {
  return options.type && c10::isFloatingType(tensor.type) && !tensor.keeps_type ? *options.type : tensor.type;
}

std::uint64_t bytes_of(const ExportTensor& tensor, const ExportOptions& options) {
  return stored_bytes(stored_type_of(type_of(tensor, options)), tensor.shape).value();
}

void write_file(const std::string& path, const std::string& text, FileSystem& files) {
  OutputFile file(files, path);
  file.write(text.data(), text.size());
  file.finish();
}

// Deals the tensors in order to shards that are as full as the limit allows. A larger tensor has its own
// shard.
std::vector<Shard> deal_shards(const std::vector<ExportTensor>& tensors, const ExportOptions& options) {
  std::vector<Shard> shards(1);
  for (const auto& tensor : tensors) {
    const std::uint64_t bytes = bytes_of(tensor, options);
    if (shards.back().bytes > 0 && shards.back().bytes + bytes > options.most_shard_bytes) shards.emplace_back();
    shards.back().tensors.push_back(&tensor);
    shards.back().bytes += bytes;
  }
  // Wide types first, then by name, like Hugging Face's library: an untrained model then has the same bytes
  // as its source.
  for (auto& shard : shards)
    std::sort(shard.tensors.begin(), shard.tensors.end(), [&](const ExportTensor* left, const ExportTensor* right) {
      const auto size = [&](const ExportTensor* tensor) { return c10::elementSize(type_of(*tensor, options)); };
      return std::pair(size(right), std::string_view(left->name)) <
             std::pair(size(left), std::string_view(right->name));
    });
  return shards;
}

// A reader would load the remaining files of the other form.
void refuse_other_form(const std::string& directory, bool sharded) {
  const std::string other = directory + "/" + (sharded ? kModelFile : kModelIndex);
  if (path_exists(other))
    throw UsageError({directory, "the directory already has " + other + ", which would hide the new files", "",
                      "remove it, or choose another directory"});
}

// Throws if a narrower type turns finite values into infinities; float16, for example, ends at 65504.
void refuse_new_infinities(const ExportTensor& tensor, const torch::Tensor& held, const torch::Tensor& values) {
  if (values.scalar_type() == held.scalar_type() || !values.is_floating_point()) return;
  if (!torch::isinf(values).logical_and(torch::isfinite(held.to(values.device()))).any().item<bool>()) return;
  throw InputError({tensor.name, fmt::format("some values are infinite as {}", dtype_name(values.scalar_type())),
                    "a type that can represent them", "export as bfloat16 or float32"});
}

FileSystem& files_of(const ExportOptions& options) { return options.files ? *options.files : system_files(); }

template <class Written>
void write_shard(const std::string& path, const Shard& shard, const ExportOptions& options, const Written& written) {
  std::vector<NamedTensorShape> shapes;
  for (const auto* tensor : shard.tensors)
    shapes.push_back({tensor->name, &stored_type_of(type_of(*tensor, options)), tensor->shape});
  const std::string header = make_safetensors_header(shapes, {{"format", "pt"}});
  OutputFile file(files_of(options), path);
  file.write(header.data(), header.size());
  for (const auto* tensor : shard.tensors) {
    const torch::Tensor held = tensor->read().detach();
    const torch::Tensor values = held.to(torch::kCPU, type_of(*tensor, options)).contiguous();
    refuse_new_infinities(*tensor, held, values);
    if (values.sizes() != at::IntArrayRef(tensor->shape))
      throw InternalError({tensor->name, "the tensor is " + describe(values), "the announced shape", ""});
    if (values.nbytes() > 0) file.write(values.data_ptr(), values.nbytes());
    written(values.nbytes());
  }
  file.finish();
}

void write_shards(const StagedFiles& staged, const std::vector<Shard>& shards, const ExportOptions& options) {
  std::uint64_t all = 0, done = 0;
  for (const auto& shard : shards) all += shard.bytes;
  const auto written = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, all);
  };
  if (shards.size() == 1) return write_shard(staged.path(kModelFile), shards[0], options, written);
  json weight_map = json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_shard(staged.path(name), shards[i], options, written);
    for (const auto* tensor : shards[i].tensors) weight_map[tensor->name] = name;
  }
  const json index = {{"metadata", {{"total_size", all}}}, {"weight_map", weight_map}};
  write_file(staged.path(kModelIndex), index.dump(2) + "\n", files_of(options));
}

// The type of most of the bytes, because norms and expert biases may have a wider type. Scales of codes keep
// their type and do not count.
torch::ScalarType prevailing_type(const std::vector<ExportTensor>& tensors, const ExportOptions& options) {
  std::map<torch::ScalarType, std::uint64_t> bytes;
  for (const auto& tensor : tensors)
    if (c10::isFloatingType(type_of(tensor, options)) && !tensor.keeps_type)
      bytes[type_of(tensor, options)] += bytes_of(tensor, options);
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? type_of(tensors.front(), options) : most->first;
}

// Checks every file and returns the options for the writing that follows. Their progress covers reading and
// writing together.
ExportOptions check_hashes(const std::string& folder, const Manifest& manifest,
                           const std::vector<ExportTensor>& tensors, ExportOptions options) {
  std::uint64_t all = 0, done = 0;
  for (const auto* files : {&manifest.files, &manifest.companions})
    for (const auto& [name, file] : *files) all += file.size;
  for (const auto& tensor : tensors) all += bytes_of(tensor, options);
  const auto progress = options.progress;
  check_all_hashes(folder, manifest, [&](std::uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, all);
  });
  if (progress)
    options.progress = [progress, done, all](std::uint64_t written, std::uint64_t) { progress(done + written, all); };
  return options;
}

}  // namespace

void save_hugging_face(const std::string& directory, const json& config, const std::vector<ExportTensor>& given,
                       const ExportOptions& options) {
  json full = config;
  const auto tensors = options.quantize ? quantized_tensors(given, full, options) : given;
  StagedFiles staged(directory, files_of(options));
  const auto shards = deal_shards(tensors, options);
  refuse_other_form(directory, shards.size() > 1);
  write_shards(staged, shards, options);
  copy_companion_files(options.model_directory, StagedFiles::folder(directory), files_of(options));
  if (!tensors.empty()) set_weight_type(full, dtype_name(prevailing_type(tensors, options)));
  complete_rope_spellings(full);
  write_file(staged.path("config.json"), full.dump(2) + "\n", files_of(options));
  staged.place();
}

std::vector<ExportTensor> hugging_face_tensors(const std::vector<models::TensorName>& names, CheckpointFiles& files,
                                               const std::function<const ManifestTensor&(const std::string&)>& find) {
  std::vector<ExportTensor> tensors;
  for (const auto& name : names) {
    const ManifestTensor& tensor = find(name.name);
    const auto type = scalar_type_of(*tensor.type, name.name);
    for (const auto& part : name.parts) {
      const Slice slice = slice_of_part(tensor.shape, part);
      const auto read_part = [&files, &tensor, slice, type] {
        torch::Tensor values = torch::empty(slice.shape, type);
        files.read_into(tensor, values, slice);
        return values.view(shape_of_part(slice));
      };
      tensors.push_back({part.hugging_face, shape_of_part(slice), type, read_part});
    }
    if (!name.parts.empty()) continue;
    std::vector<std::int64_t> shape = tensor.shape;
    if (name.transposed) std::reverse(shape.begin(), shape.end());
    const auto read = [&files, &tensor, turned = name.transposed] {
      const torch::Tensor full = files.read(tensor);
      return turned ? full.t() : full;
    };
    tensors.push_back({name.hugging_face, shape, type, read});
    for (const auto& copy : name.copies) tensors.push_back({copy, shape, type, read});
  }
  return tensors;
}

std::vector<ExportTensor> tensors_of_other_parts(const std::string& directory, const models::ModelFamily& family,
                                                 const json& config) {
  std::vector<ExportTensor> tensors;
  if (family.other_parts.empty()) return tensors;
  const StoredNames names(family, config);
  for (const auto& path : find_model_files(directory).paths) {
    const auto file = std::make_shared<const SafetensorsFile>(path);
    for (const auto& name : file->names())
      if ((models::is_of_other_part(family.other_parts, name) ||
           models::is_unused_key(family.model_type, config, name)) &&
          !names.is_known(names.find(name)))
        tensors.push_back({.name = name,
                           .shape = file->shape(name),
                           .type = file->dtype(name),
                           .read = [file, name] { return file->read(name); },
                           .keeps_type = true});
  }
  return tensors;
}

namespace {

// The directory of the model from which the checkpoint's run started.
std::string directory_of_other_parts(const std::string& folder, const Manifest& manifest) {
  const std::string directory =
      manifest.config_text.empty() ? "" : Config::parse_written(manifest.config_text, folder).model.path;
  if (directory.empty() || has_model_files(directory)) return directory;
  throw InputError({directory,
                    fmt::format("the directory has no weights, but {} lacks the parts of the model that "
                                "Gantry does not load",
                                folder),
                    "the directory of the run's model (model.path)", "make it available at this path"});
}

}  // namespace

void export_checkpoint(const std::string& folder, const std::string& directory, const ExportOptions& options) {
  const Manifest manifest = read_manifest(folder);
  const auto& family = models::families().at(manifest.policy);
  CheckpointFiles files(folder, &manifest);
  const auto names = family.tensor_names(manifest.model_config);
  const auto weight = [&](const std::string& name) -> const ManifestTensor& {
    return exported_tensor(folder, manifest, name, /*average=*/false);
  };
  auto tensors = hugging_face_tensors(names, files, weight);
  if (options.average) {
    require_averages(folder, manifest);
    auto averages = hugging_face_tensors(names, files, [&](const std::string& name) -> const ManifestTensor& {
      return exported_tensor(folder, manifest, name, /*average=*/true);
    });
    // Averages may have a wider type than the weights.
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].read = std::move(averages[i].read);
  }
  if (!family.other_parts.empty())
    if (const std::string model = directory_of_other_parts(folder, manifest); !model.empty())
      for (auto& tensor : tensors_of_other_parts(model, family, manifest.model_config))
        tensors.push_back(std::move(tensor));
  ExportOptions rest = check_hashes(folder, manifest, tensors, options);
  rest.model_directory = companion_directory(folder, manifest);
  save_hugging_face(directory, family.hugging_face_config(manifest.model_config), tensors, rest);
}

}  // namespace gantry
