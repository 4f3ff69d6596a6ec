#include "gantry/trainer/data_contents.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "gantry/core/io/paths.h"
#include "gantry/data/dataset.h"
#include "gantry/data/encoding_cache.h"
#include "gantry/data/tokenizers/tokenizer.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

SampledContent content_at(const DataConfig& data, const std::string& path,
                          std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max()) {
  // The names of the directories are the classes of images.
  return sample_content(data_files(data.format, path), data.format == "images" ? path : "", most_bytes);
}

// Files of a model's directory that do not change its tokens.
bool is_of_model(const fs::path& file) {
  constexpr std::array<std::string_view, 3> kNames = {"config.json", "generation_config.json", "adapter_config.json"};
  const std::string name = file.filename().string();
  return std::ranges::count(kNames, name) > 0 || name.ends_with(".index.json");
}

}  // namespace

std::vector<SampledContent> data_contents(const DataConfig& data) {
  std::vector<SampledContent> contents;
  if (data.format.empty()) return contents;
  if (data.sources.empty()) contents.push_back(content_at(data, data.path));
  for (const auto& source : data.sources) contents.push_back(content_at(data, source.path));
  return contents;
}

bool begins_with(const DataConfig& data, const SampledContent& before) {
  return data.sources.empty() && !data.path.empty() && content_at(data, data.path, before.bytes) == before;
}

std::vector<SampledContent> tokenizer_contents(const Config& config) {
  const DataConfig& data = config.data;
  constexpr std::array<std::string_view, 3> kOfText = {"text", "jsonl", "squad"};
  if (std::ranges::count(kOfText, data.format) == 0) return {};
  const std::string& tokenizer = data.tokenizer.empty() ? config.model.path : data.tokenizer;
  std::vector<fs::path> files;
  if (!tokenizer.empty() && !is_byte_tokenizer(tokenizer) && path_exists(tokenizer)) files = tokenizer_files(tokenizer);
  std::erase_if(files, is_of_model);
  if (!data.chat_template.empty() && is_file(data.chat_template)) files.emplace_back(data.chat_template);
  if (files.empty()) return {};
  return {sample_content(files)};
}

}  // namespace gantry
