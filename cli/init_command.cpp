#include "gantry/cli/init_command.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "gantry/cli/init_samples.h"
#include "gantry/core/error.h"
#include "gantry/core/io/output.h"
#include "gantry/core/version.h"
#include "gantry/models/described/decoder_family.h"

namespace gantry::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 64;

// The name is also CMake's project name.
void require_name(const std::string& name) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_part = [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (!name.empty() && name.size() <= kLongestName && is_lower(name[0]) &&
      std::all_of(name.begin(), name.end(), is_part))
    return;
  throw UsageError(
      {"gantry init", fmt::format("'{}' is not a valid project name", name),
       fmt::format("a lower-case letter, then lower-case letters, digits and _, at most {} characters", kLongestName),
       "choose a name such as my_model"});
}

void require_free(const fs::path& folder) {
  std::error_code failure;
  const auto status = fs::symlink_status(folder, failure);
  if (!fs::exists(status)) return;
  const bool is_folder = fs::is_directory(folder, failure);
  if (is_folder && fs::is_empty(folder, failure) && !failure) return;
  throw UsageError({"gantry init",
                    fmt::format("{} exists already{}", folder.string(), is_folder ? " and is not empty" : ""),
                    "a new name, or an empty directory", "choose another name, or move the existing files away"});
}

std::string filled(std::string text, const std::string& mark, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += value.size())
    text.replace(at, mark.size(), value);
  return text;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw ResourceError({path.string(), "the file cannot be written", "a writable directory with free space",
                         "run gantry init in another directory"});
}

// Marks of the templates, such as @NAME@, and their values.
using Marks = std::vector<std::pair<std::string, std::string>>;

[[noreturn]] void refuse_family(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& family : models::decoder_families()) known.push_back(family.model_type);
  for (const auto& family : sampled_families()) known.push_back(family.model_type);
  const std::string near = nearest_name(name, known);
  throw UsageError({"gantry init", "'" + name + "' is not a known family",
                    fmt::format("one of {}", fmt::join(known, ", ")),
                    near.empty() ? "" : "did you mean '" + near + "'?"});
}

void append_filled(const TemplateFile& file, const Marks& marks, std::vector<TemplateFile>& files) {
  std::string text = file.text;
  for (const auto& [mark, value] : marks) text = filled(text, mark, value);
  files.push_back({file.name, text});
}

// Appends the files of a project that generates its samples. Only the drawn_* file of its own family is included.
void append_samples(const SampledFamily& family, std::vector<TemplateFile>& files) {
  const Marks marks = {{"@FAMILY@", family.model_type}, {"@KEYS@", family.keys}, {"@DATA@", family.data}};
  for (const TemplateFile& file : samples_template()) {
    if (file.name == family.drawn)
      append_filled({"drawn_samples.h", file.text}, marks, files);
    else if (!file.name.starts_with("drawn_"))
      append_filled(file, marks, files);
  }
}

// Returns the files of a project. `name`: a known family; empty: a project with its own model.
std::vector<TemplateFile> project_files(const std::string& name) {
  if (name.empty()) return project_template();
  std::vector<TemplateFile> files;
  for (const TemplateFile& file : project_template())
    if (file.name == "CMakeLists.txt" || file.name == "gitignore") files.push_back(file);
  const std::size_t common = files.size();
  for (const auto& family : models::decoder_families())
    if (family.model_type == name)
      for (const TemplateFile& file : family_template())
        append_filled(file, {{"@FAMILY@", name}, {"@KEYS@", family.small.dump()}}, files);
  for (const auto& family : sampled_families())
    if (family.model_type == name) append_samples(family, files);
  if (files.size() == common) refuse_family(name);
  return files;
}

void make_project(const std::string& name, const std::string& family) {
  require_name(name);
  const std::vector<TemplateFile> files = project_files(family);
  const fs::path folder = name;
  require_free(folder);
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure)
    throw ResourceError({name, "the directory cannot be created: " + failure.message(), "a writable directory",
                         "run gantry init in another directory"});
  const std::string version = GANTRY_VERSION;
  for (const auto& [file, text] : files)
    write_file(folder / (file == "gitignore" ? ".gitignore" : file),
               filled(filled(text, "@NAME@", name), "@VERSION@", version.substr(0, version.rfind('.'))));
  print_output(
      fmt::format("{0}: {1}, train.yaml and a training program\n"
                  "  cmake -S {0} -B {0}/build && cmake --build {0}/build\n"
                  "  cd {0} && build/train train.yaml\n",
                  name, family.empty() ? "a model, its policy" : "a small " + family));
}

}  // namespace

void add_init_command(CLI::App& app) {
  auto* init = app.add_subcommand("init", "Create a project: a model, its policy and a training program");
  const auto name = std::make_shared<std::string>(), family = std::make_shared<std::string>();
  init->add_option("name", *name, "Name of the project and of its new directory")->required();
  init->add_option("--family", *family, "Create a project for a model of this family (docs/models.md), such as llama")
      ->type_name("FAMILY");
  init->callback([name, family] { make_project(*name, *family); });
}

}  // namespace gantry::cli
