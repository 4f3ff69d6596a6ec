#include "gantry/trainer/reference_cache.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <random>
#include <vector>

#include "gantry/checkpoint/format/files.h"
#include "gantry/checkpoint/safetensors.h"
#include "gantry/core/error.h"
#include "gantry/core/io/durable_file.h"
#include "gantry/core/io/paths.h"
#include "gantry/tensors/libtorch.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCacheKey = "train.objective.reference_cache";
constexpr const char* kCacheKind = "gantry log-probabilities of a reference";
constexpr const char* kNoScores = "the file is damaged, or is of another program";
constexpr const char* kScoresName = "log_probabilities";
constexpr const char* kCacheEnd = ".safetensors";
constexpr std::array kCacheFacts = {"samples", "reference", "form", "settings", "files", "content"};

struct CachedScores {
  std::map<std::string, std::string> metadata;
  torch::Tensor scores;
};

std::string form_name(ReferenceForm form) {
  return form == ReferenceForm::kInitial ? "initial" : form == ReferenceForm::kModel ? "model" : "adapter";
}

std::string content_of(const torch::Tensor& scores) {
  return hash_of({static_cast<const char*>(scores.const_data_ptr()), scores.nbytes()});
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw InputError({path, what, "log-probabilities of a reference, which train.objective.reference_cache has stored",
                    "remove the file, so that they are computed again, or choose another directory"});
}

CachedScores read_cached(const std::string& path) {
  CachedScores read;
  try {
    const SafetensorsFile file(path);
    read.metadata = file.metadata();
    const auto has = [&](const char* key) { return read.metadata.contains(key); };
    if (read.metadata["kind"] != kCacheKind || !std::ranges::all_of(kCacheFacts, has) || !file.contains(kScoresName))
      refuse_file(path, kNoScores);
    read.scores = file.read(kScoresName);
  } catch (const InputError&) {
    refuse_file(path, kNoScores);
  }
  if (read.scores.scalar_type() != torch::kFloat64 || read.scores.dim() != 2 || read.scores.size(1) != 2 ||
      read.metadata["content"] != content_of(read.scores))
    refuse_file(path, "the file is damaged: its numbers do not have their hash");
  return read;
}

// A temporary name that no other run uses.
std::string partial_name(const std::string& path) {
  std::random_device random;
  return fmt::format("{}.{:08x}{:08x}.partial", path, random(), random());
}

}  // namespace

ReferenceCache::ReferenceCache(const Config& config, const OpenProgress& progress)
    : config_(config), directory_(config.train.objective.reference_cache) {
  if (path_exists(directory_) && !is_folder(directory_))
    throw ConfigError({kCacheKey, directory_ + " is a file", "a directory", "choose another path"});
  make_folders(directory_);
  if (const std::string& stated = config.train.objective.reference; !stated.empty()) {
    reference_ = fs::absolute(stated).lexically_normal().string();
    exists_ = path_exists(stated);
  }
  if (!exists_) return;
  form_ = reference_form(config);
  settings_ = digest_of_settings(config, form_, progress);
  files_ = digest_of_reference_files(config, form_, progress);
}

std::string ReferenceCache::path_of(const std::string& samples) const {
  return fmt::format("{}/{}-{}{}", directory_, samples, hash_of(settings_ + files_), kCacheEnd);
}

torch::Tensor ReferenceCache::find(const std::string& samples, const OpenProgress& progress) const {
  if (!exists_) return find_without_reference(samples, progress);
  const std::string path = path_of(samples);
  if (!path_exists(path)) return {};
  const CachedScores read = read_cached(path);
  if (read.metadata.at("samples") != samples || read.metadata.at("settings") != settings_ ||
      read.metadata.at("files") != files_)
    refuse_file(path, "the file has the log-probabilities of another reference or other samples");
  return read.scores;
}

torch::Tensor ReferenceCache::find_without_reference(const std::string& samples, const OpenProgress& progress) const {
  std::vector<torch::Tensor> found;
  std::map<std::string, std::string> settings;  // by the name of the form
  for (const fs::path& path : entries_of(directory_)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(samples + "-") || !name.ends_with(kCacheEnd)) continue;
    const CachedScores read = read_cached(path.string());
    if (read.metadata.at("reference") != reference_) continue;
    const std::string& form = read.metadata.at("form");
    if (settings.empty())
      for (const ReferenceForm each : {ReferenceForm::kModel, ReferenceForm::kAdapter})
        settings[form_name(each)] = digest_of_settings(config_, each, progress);
    if (read.metadata.at("settings") == settings[form]) found.push_back(read.scores);
  }
  if (found.size() == 1) return found.front();
  throw InputError({"train.objective.reference",
                    fmt::format("{} does not exist, and {} has {} for these samples", reference_, directory_,
                                found.empty() ? std::string("no log-probabilities of it")
                                              : fmt::format("those of {} references at this path", found.size())),
                    "the directory of the reference", "restore the directory, or correct the key"});
}

void ReferenceCache::store(const std::string& samples, const torch::Tensor& scores, FileSystem& files) const {
  const std::string path = path_of(samples);
  if (path_exists(path)) return;
  const torch::Tensor stored = scores.contiguous();
  const std::string partial = partial_name(path);
  HashedFile file(files, partial);
  write_tensors(file, {{kScoresName, stored}},
                {{"kind", kCacheKind},
                 {"samples", samples},
                 {"reference", reference_},
                 {"form", form_name(form_)},
                 {"settings", settings_},
                 {"files", files_},
                 {"content", content_of(stored)}});
  file.finish();
  rename_durably(partial, path, files);
}

}  // namespace gantry
