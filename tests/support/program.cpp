#include "program.h"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace gantry::testing {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // does not throw if the process of a /proc file ends meanwhile
  return text.str();
}

Outcome run_program(const std::string& command, int seconds) {
  const ScratchFolder scratch;
  const std::string out = scratch / "out", err = scratch / "err";
  const std::string script = scratch.write("command", command + "\n");
  const std::string line = fmt::format("timeout -k 5 {} sh {} >{} 2>{} </dev/null", seconds, script, out, err);
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

std::string some_letters(int count, int period) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>('a' + i * i % period);
  return text;
}

bool is_long_form() {
  const char* asked = std::getenv("GANTRY_LONG");
  return asked && std::string(asked) == "1";
}

std::string find_program(const std::string& name) {
  const std::string found = run_program("command -v " + name).out;
  return found.substr(0, found.find('\n'));
}

std::string gantry_program() {
  const char* path = std::getenv("GANTRY_BIN");
  return path ? path : std::string(GANTRY_BUILD_DIR) + "/bin/gantry";
}

ScratchFolder::ScratchFolder() {
  std::string name = std::filesystem::temp_directory_path().string();
  name.append("/gantry_test_XXXXXX");
  if (!mkdtemp(name.data())) std::abort();
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchFolder::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  return path_ + "/" + name;
}

}  // namespace gantry::testing
