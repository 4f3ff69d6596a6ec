#include "gantry/core/io/paths.h"

#include <algorithm>
#include <system_error>

#include "gantry/core/error.h"

namespace gantry {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_path(const fs::path& path, const std::error_code& failure) {
  throw InputError({path.string(), "the path cannot be read: " + failure.message(), "a path that this user can read",
                    "check the path and its permissions"});
}

fs::file_status status_of(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::none) refuse_path(path, failure);
  return status;
}

template <class Iterator>
std::vector<fs::path> listed(const fs::path& folder, const auto& takes) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (Iterator entry(folder, fs::directory_options::follow_directory_symlink, failure), end; !failure && entry != end;
       entry.increment(failure))
    if (takes(entry->path())) paths.push_back(entry->path());
  if (failure) refuse_path(folder, failure);
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_data_file(const fs::path& path) {
  const fs::file_status status = status_of(path);
  if (fs::exists(status) || path.filename().string().starts_with('.')) return fs::is_regular_file(status);
  throw InputError({path.string(), "the link leads to a file that does not exist", "a file",
                    "mount or fetch the files that it leads to, or remove the link"});
}

}  // namespace

bool path_exists(const fs::path& path) { return fs::exists(status_of(path)); }

bool is_folder(const fs::path& path) { return fs::is_directory(status_of(path)); }

bool is_file(const fs::path& path) { return fs::is_regular_file(status_of(path)); }

std::vector<fs::path> entries_of(const fs::path& folder) {
  return listed<fs::directory_iterator>(folder, [](const fs::path&) { return true; });
}

std::vector<fs::path> files_below(const fs::path& folder) {
  return listed<fs::recursive_directory_iterator>(folder, is_data_file);
}

}  // namespace gantry
