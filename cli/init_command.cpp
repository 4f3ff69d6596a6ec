#include "gantry/cli/init_command.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>

#include "gantry/core/error.h"
#include "gantry/core/output.h"
#include "gantry/core/version.h"

namespace gantry::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 64;

// The name is CMake's project name, too.
void require_name(const std::string& name) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_part = [&](char c) { return is_lower(c) || (c >= '0' && c <= '9') || c == '_'; };
  if (!name.empty() && name.size() <= kLongestName && is_lower(name[0]) &&
      std::all_of(name.begin(), name.end(), is_part))
    return;
  throw UsageError({"gantry init", fmt::format("'{}' is no name for a project", name),
                    fmt::format("a lower-case letter, then lower-case letters, digits and _, {} at most", kLongestName),
                    "such as gantry init my_model"});
}

void require_free(const fs::path& folder) {
  std::error_code failure;
  const auto status = fs::symlink_status(folder, failure);
  if (!fs::exists(status)) return;
  const bool is_folder = fs::is_directory(folder, failure);
  if (is_folder && fs::is_empty(folder, failure) && !failure) return;
  throw UsageError({"gantry init",
                    fmt::format("{} is there already{}", folder.string(), is_folder ? " and not empty" : ""),
                    "a new name, or an empty folder", "choose another name, or move it away"});
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
    throw ResourceError({path.string(), "can't be written", "a folder that can be written, with free space",
                         "run gantry init in another folder"});
}

void make_project(const std::string& name) {
  require_name(name);
  const fs::path folder = name;
  require_free(folder);
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure)
    throw ResourceError({name, "can't be made: " + failure.message(), "a folder that can be written",
                         "run gantry init in another folder"});
  const std::string version = GANTRY_VERSION;
  for (const auto& [file, text] : project_template())
    write_file(folder / (file == "gitignore" ? ".gitignore" : file),
               filled(filled(text, "@NAME@", name), "@VERSION@", version.substr(0, version.rfind('.'))));
  print_output(
      fmt::format("{0}: a model, its policy, train.yaml and a training program\n"
                  "  cmake -S {0} -B {0}/build && cmake --build {0}/build\n"
                  "  cd {0} && build/train train.yaml\n",
                  name));
}

}  // namespace

void add_init_command(CLI::App& app) {
  auto* init = app.add_subcommand("init", "Start a project of your own: a model, its policy and a training program");
  const auto name = std::make_shared<std::string>();
  init->add_option("name", *name, "Of the project and its new folder")->required();
  init->callback([name] { make_project(*name); });
}

}  // namespace gantry::cli
