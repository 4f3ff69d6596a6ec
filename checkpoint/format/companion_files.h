// The files of a model directory that are not weights: tokenizer, chat templates, generation_config.json,
// preprocessor_config.json, code, model card. Exports copy them. A checkpoint contains copies, so that it can
// be exported on hosts without the model directory. Without LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gantry/checkpoint/format/manifest.h"
#include "gantry/core/file_system.h"

namespace gantry {

inline constexpr const char* kCompanionFolder = "model_files";                // subdirectory of a checkpoint
inline constexpr std::uint64_t kMostCompanionBytes = std::uint64_t{1} << 28;  // total of a directory

struct CompanionFiles {
  std::map<std::string, std::string> contents;  // by path in the directory, such as 1_Pooling/config.json
  std::vector<std::string> left_out;            // a line for each file that cannot be read or is too large

  std::uint64_t bytes() const;
};

// Reads the files. Weights, their indexes, config.json, adapter_config.json and hidden files are not
// included. The subdirectories that are read are additional_chat_templates and the modules of
// sentence-transformers ("1_Pooling"). If all files together exceed `most_bytes`, the largest ones are left out first.
// A directory that does not exist, or "", has no files.
CompanionFiles read_companion_files(const std::string& directory, std::uint64_t most_bytes = kMostCompanionBytes);

// Writes the files below `directory`, which must exist, synced. Returns the entries of a manifest, by path. Throws
// ResourceError.
std::map<std::string, ManifestFile> write_companion_files(const std::string& directory, const CompanionFiles& files,
                                                          FileSystem& system);

// Reads the files of `from` and writes them below `to`, with a warning on stderr for each file that is left out.
void copy_companion_files(const std::string& from, const std::string& to, FileSystem& system);

// Returns the directory with the companion files of a checkpoint: its own copies, or, if it has none, the model
// directory of its run. "" if there is none either.
std::string companion_directory(const std::string& folder, const Manifest& manifest);

}  // namespace gantry
