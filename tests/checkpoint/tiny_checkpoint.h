// A small checkpoint of four ranks, made without LibTorch.
#pragma once

#include "faulty_files.h"
#include "gantry/checkpoint/format/checkpoint_folder.h"
#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/format/safetensors_header.h"

namespace gantry::testing {

inline constexpr int kTinyRanks = 4;

// Writes two rows per rank of tensors with shape [8, 3]. The bytes depend on the rank and on `shift`.
inline RankPart write_tiny_rank(const std::string& folder, int rank, int shift, FileSystem& files) {
  std::vector<NamedTensorShape> shapes;
  RankPart part{rank_file_name(rank), {}, {}};
  for (const char* type : {"F32", "BF16", "F64"}) {
    ManifestTensor tensor{"model", std::string("h.0.") + type, find_stored_type(type), {8, 3}, {}};
    tensor.slices.push_back({part.file, {{.dim = 0, .ranges = {{2 * rank, 2 * rank + 2}}}}});
    shapes.push_back({tensor.key(), tensor.type, tensor.slice_of(tensor.slices.front()).shape});
    part.tensors.push_back(tensor);
  }
  const std::string header = make_safetensors_header(shapes, {});
  HashedFile file(files, folder + "/" + part.file);
  file.write(header.data(), header.size());
  std::string data(6 * (4 + 2 + 8), '\0');
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<char>((i * 7 + static_cast<std::size_t>(rank + shift)) % 60);
  file.write(data.data(), data.size());
  file.finish();
  part.facts = {file.hash(), file.size()};
  return part;
}

// Saves a checkpoint and returns its directory.
inline std::string save_tiny(const std::string& directory, std::int64_t step, int shift = 0) {
  FaultyFiles files;
  CheckpointFolder folder(directory, files);
  folder.begin(step, 1000);
  for (int rank = 0; rank < kTinyRanks; ++rank)
    write_part(folder.partial(step), write_tiny_rank(folder.partial(step), rank, shift, files), files);
  return folder.commit({.step = step,
                        .policy = "gpt2",
                        .config_text = "model: {policy: gpt2}\n",
                        .layout = {{"dp", 1}, {"pp", 1}, {"tp", kTinyRanks}}},
                       kTinyRanks, {});
}

}  // namespace gantry::testing
