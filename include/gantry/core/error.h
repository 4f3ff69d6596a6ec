// The one tree of errors that Gantry throws, and the exit code of each kind.
//
// An error is one line: "where: what; expected; remedy". Empty parts are left out. Programs print it as "error:
// <line>".
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace gantry {

struct ErrorText {
  std::string where;     // file:line:column, a key, a parameter's path, a rank
  std::string what;      // the value and the arithmetic that failed
  std::string expected;  // what would have been right; may be empty
  std::string remedy;    // what to do; may be empty
};

// "where: what; expected; remedy", newlines replaced by spaces so that it is one line.
std::string format_error(const ErrorText& text);

class Error : public std::runtime_error {
 public:
  Error(int exit_code, const ErrorText& text) : std::runtime_error(format_error(text)), exit_code_(exit_code) {}
  Error(int exit_code, const std::string& line) : std::runtime_error(line), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

namespace detail {
template <int kCode>
class ErrorOf : public Error {
 public:
  static constexpr int kExitCode = kCode;
  explicit ErrorOf(const ErrorText& text) : Error(kCode, text) {}
  explicit ErrorOf(const std::string& line) : Error(kCode, line) {}
};
}  // namespace detail

struct InternalError : detail::ErrorOf<1> {
  using ErrorOf::ErrorOf;
};  // a bug of Gantry's
struct UsageError : detail::ErrorOf<2> {
  using ErrorOf::ErrorOf;
};  // wrong command line or call
struct ConfigError : detail::ErrorOf<3> {
  using ErrorOf::ErrorOf;
};  // YAML, mesh, shard plan
struct InputError : detail::ErrorOf<4> {
  using ErrorOf::ErrorOf;
};  // data or model file
struct CheckpointError : detail::ErrorOf<5> {
  using ErrorOf::ErrorOf;
};
struct ResourceError : detail::ErrorOf<6> {
  using ErrorOf::ErrorOf;
};  // memory, disk
struct PeerError : detail::ErrorOf<7> {
  using ErrorOf::ErrorOf;
};  // a peer lost, or a wait timed out
struct NumericalError : detail::ErrorOf<8> {
  using ErrorOf::ErrorOf;
};  // non-finite values, replicas that differ
struct UserError : detail::ErrorOf<9> {
  using ErrorOf::ErrorOf;
};  // what a user's own model, policy, criterion, data set or training loop threw that is no gantry::Error
struct StopRequested : detail::ErrorOf<75> {
  using ErrorOf::ErrorOf;
};  // stopped on request, checkpoint saved

// The name of `names` nearest to `name` by edit distance, or "" if none is near enough to be meant.
template <class Names>
std::string nearest_name(const std::string& name, const Names& names);
int edit_distance(const std::string& a, const std::string& b);

template <class Names>
std::string nearest_name(const std::string& name, const Names& names) {
  std::string best;
  int best_distance = static_cast<int>(name.size()) / 3 + 2;
  for (const auto& candidate : names) {
    if (std::abs(static_cast<int>(candidate.size()) - static_cast<int>(name.size())) >= best_distance) continue;
    const int distance = edit_distance(name, candidate);
    if (distance < best_distance) best_distance = distance, best = candidate;
  }
  return best;
}

}  // namespace gantry
