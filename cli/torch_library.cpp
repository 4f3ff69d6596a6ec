#include "gantry/cli/torch_library.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <sstream>

#include "gantry/core/error.h"

namespace gantry::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBuiltFor = GANTRY_TORCH_VERSION;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_torch(const fs::path& folder) {
  std::error_code failure;
  return fs::exists(folder / "lib" / "libtorch.so", failure);
}

// Returns the torch directories of every python3* in `folder`, newest name first.
std::vector<fs::path> in_pythons(const fs::path& folder, const char* packages) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->path().filename().string().starts_with("python3")) found.push_back(entry->path() / packages / "torch");
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::vector<fs::path> usual_places() {
  std::vector<fs::path> places = {GANTRY_TORCH_ROOT, "/opt/libtorch"};
  const auto add = [&](const std::vector<fs::path>& more) { places.insert(places.end(), more.begin(), more.end()); };
  if (const std::string environment = variable("VIRTUAL_ENV"); !environment.empty())
    add(in_pythons(environment + "/lib", "site-packages"));
  if (const std::string home = variable("HOME"); !home.empty()) add(in_pythons(home + "/.local/lib", "site-packages"));
  add(in_pythons("/usr/local/lib", "dist-packages"));
  add(in_pythons("/usr/lib", "dist-packages"));
  return places;
}

// Returns "2.13.0" from version.py of a wheel or build-version of a LibTorch archive; empty: the version is unknown.
std::string version_of(const fs::path& folder) {
  for (const char* name : {"version.py", "build-version"}) {
    std::ifstream file(folder / name);
    for (std::string line; std::getline(file, line);) {
      const bool is_python = line.starts_with("__version__");
      if (!is_python && name == std::string("version.py")) continue;
      const auto begin = line.find_first_of("0123456789");
      if (begin == std::string::npos) continue;
      return line.substr(begin, line.find_first_not_of("0123456789.", begin) - begin);
    }
  }
  return "";
}

std::string major_minor(const std::string& version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

bool fits(const fs::path& folder) {
  const std::string version = version_of(folder);
  return version.empty() || major_minor(version) == major_minor(kBuiltFor);
}

bool is_on_loader_path() {
  std::istringstream folders(
      variable("LD_LIBRARY_PATH") +
      ":/usr/local/lib:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib");
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code failure;
    if (!folder.empty() && fs::exists(fs::path(folder) / "libtorch.so", failure)) return true;
  }
  return false;
}

TorchLibrary chosen_by_user(const std::string& chosen) {
  std::vector<fs::path> places = in_pythons(chosen + "/lib", "site-packages");
  places.insert(places.begin(), chosen);
  for (const auto& folder : places) {
    if (!is_torch(folder)) continue;
    if (fits(folder)) return {.folder = folder.string(), .is_on_loader_path = false, .passed_over = {}};
    throw UsageError({"GANTRY_TORCH", fmt::format("{} is LibTorch {}", folder.string(), version_of(folder)),
                      fmt::format("LibTorch {}, for which this Gantry was built", major_minor(kBuiltFor)),
                      "choose another directory"});
  }
  throw UsageError({"GANTRY_TORCH", "'" + chosen + "' has no lib/libtorch.so", "the directory of LibTorch",
                    "set it to a directory such as VENV/lib/python3.11/site-packages/torch, or to VENV"});
}

}  // namespace

TorchLibrary find_torch_library() {
  if (const std::string chosen = variable("GANTRY_TORCH"); !chosen.empty()) return chosen_by_user(chosen);
  TorchLibrary found{.folder = "", .is_on_loader_path = is_on_loader_path(), .passed_over = {}};
  if (found.is_on_loader_path) return found;
  for (const auto& folder : usual_places()) {
    if (!is_torch(folder)) continue;
    if (fits(folder)) {
      found.folder = folder.string();
      return found;
    }
    found.passed_over.push_back(fmt::format("{} (LibTorch {})", folder.string(), version_of(folder)));
  }
  return found;
}

std::string describe(const TorchLibrary& found) {
  if (found.is_on_loader_path) return "on the path of the dynamic loader";
  if (found.folder.empty()) return fmt::format("not found (needed: {})", kBuiltFor);
  return found.folder;
}

void prepare_torch_library() {
  const TorchLibrary found = find_torch_library();
  if (found.is_on_loader_path) return;
  if (found.folder.empty()) {
    const std::string others =
        found.passed_over.empty() ? "" : fmt::format(" (other versions: {})", fmt::join(found.passed_over, ", "));
    throw ResourceError(
        {"LibTorch", "this machine has no suitable LibTorch" + others,
         fmt::format("version {} in /opt/libtorch, in a Python environment, or in the directory GANTRY_TORCH",
                     major_minor(kBuiltFor)),
         fmt::format("run python3 -m venv ~/torch && ~/torch/bin/pip install torch=={} && export "
                     "GANTRY_TORCH=~/torch",
                     kBuiltFor)});
  }
  const std::string before = variable("LD_LIBRARY_PATH");
  const std::string folders = found.folder + "/lib" + (before.empty() ? "" : ":" + before);
  ::setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
}

}  // namespace gantry::cli
