#include "gantry/checkpoint/format/companion_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "gantry/checkpoint/format/files.h"
#include "gantry/core/base/warning.h"
#include "gantry/core/config.h"
#include "gantry/core/error.h"
#include "gantry/core/io/paths.h"
#include "gantry/core/mapped_file.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 15> kWeightEndings = {".safetensors", ".bin",     ".pt",     ".pth",  ".ckpt",
                                                        ".h5",          ".msgpack", ".gguf",   ".ggml", ".onnx",
                                                        ".npz",         ".pkl",     ".pickle", ".data", ".index.json"};

// Files that an export writes itself.
constexpr std::array<const char*, 2> kWritten = {"config.json", "adapter_config.json"};

bool is_weights(const std::string& name) {
  return std::any_of(kWeightEndings.begin(), kWeightEndings.end(),
                     [&](const char* ending) { return name.ends_with(ending); });
}

bool is_companion(const std::string& name) {
  return !name.starts_with(".") && !is_weights(name) &&
         std::find(kWritten.begin(), kWritten.end(), name) == kWritten.end();
}

// True for "additional_chat_templates", and for modules of a sentence-transformers model such as "1_Pooling".
bool is_companion_folder(const std::string& name) {
  const std::size_t digits = name.find_first_not_of("0123456789");
  return name == "additional_chat_templates" || (digits != 0 && digits != std::string::npos && name[digits] == '_');
}

struct Found {
  std::uint64_t size;
  std::string name;
  bool operator<(const Found& other) const { return std::pair(size, name) < std::pair(other.size, other.name); }
};

void add_files(const fs::path& directory, const std::string& prefix, std::set<Found>& found) {
  for (const fs::path& entry : entries_of(directory)) {
    const std::string name = entry.filename();
    std::error_code failure;
    if (prefix.empty() && is_companion_folder(name) && is_folder(entry)) {
      add_files(entry, name + "/", found);
    } else if (is_file(entry) && (prefix.empty() ? is_companion(name) : !is_weights(name))) {
      const auto size = fs::file_size(entry, failure);
      found.insert({failure ? 0 : size, prefix + name});
    }
  }
}

}  // namespace

std::uint64_t CompanionFiles::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, text] : contents) bytes += text.size();
  return bytes;
}

CompanionFiles read_companion_files(const std::string& directory, std::uint64_t most_bytes) {
  CompanionFiles files;
  if (directory.empty() || !is_folder(directory)) return files;
  std::set<Found> found;
  add_files(directory, "", found);
  std::uint64_t bytes = 0;
  for (const auto& [size, name] : found) {
    const std::string path = directory + "/" + name;
    if (size > most_bytes - bytes) {
      files.left_out.push_back(fmt::format(
          "{}: the file is not copied, because the files besides the weights exceed {} bytes", path, most_bytes));
      continue;
    }
    bytes += size;
    try {
      files.contents[name] = MappedFile(path).text();
    } catch (const InputError& error) {
      files.left_out.push_back(fmt::format("{}; the file is not copied", error.what()));
    }
  }
  return files;
}

std::map<std::string, ManifestFile> write_companion_files(const std::string& directory, const CompanionFiles& files,
                                                          FileSystem& system) {
  std::map<std::string, ManifestFile> written;
  std::set<std::string> folders;
  for (const auto& [name, text] : files.contents) {
    const std::string path = directory + "/" + name, folder = fs::path(path).parent_path();
    if (folders.insert(folder).second) make_folders(folder, system);
    HashedFile file(system, path);
    file.write(text.data(), text.size());
    file.finish();
    written[name] = {file.hash(), file.size()};
  }
  for (const auto& folder : folders) sync_folder(folder, system);
  return written;
}

void copy_companion_files(const std::string& from, const std::string& to, FileSystem& system) {
  const CompanionFiles files = read_companion_files(from);
  for (const auto& line : files.left_out) print_warning(line);
  write_companion_files(to, files, system);
}

std::string companion_directory(const std::string& folder, const Manifest& manifest) {
  if (!manifest.companions.empty()) return folder + "/" + kCompanionFolder;
  return manifest.config_text.empty() ? "" : Config::parse_written(manifest.config_text, folder).model.path;
}

}  // namespace gantry
