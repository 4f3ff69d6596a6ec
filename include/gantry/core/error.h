// The error classes that Gantry throws, with the exit code of each class.
//
// An error is one line: `WHERE: WHAT; expected EXPECTED; REMEDY`. Empty parts are left out. Programs print it as
// "error: <line>".
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace gantry {

// The parts of an error line.
struct ErrorText {
  std::string where;     // file:line:column, a key, the path of a parameter, a rank
  std::string what;      // a clause with its own subject: the value, the failure and the reason
  std::string expected;  // a noun phrase for the accepted values; may be empty
  std::string remedy;    // an imperative; may be empty
};

// Joins the parts to one line. Control characters, such as newlines, are replaced by spaces.
std::string format_error(const ErrorText& text);

// The base class of all errors.
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
};  // a bug in Gantry
struct UsageError : detail::ErrorOf<2> {
  using ErrorOf::ErrorOf;
};  // a wrong command line or call
struct ConfigError : detail::ErrorOf<3> {
  using ErrorOf::ErrorOf;
};  // the YAML file, the mesh or the sharding
struct InputError : detail::ErrorOf<4> {
  using ErrorOf::ErrorOf;
};  // a data or model file
struct CheckpointError : detail::ErrorOf<5> {
  using ErrorOf::ErrorOf;
};
struct ResourceError : detail::ErrorOf<6> {
  using ErrorOf::ErrorOf;
};  // memory or disk space
struct PeerError : detail::ErrorOf<7> {
  using ErrorOf::ErrorOf;
};  // a lost rank, or a wait that timed out
struct NumericalError : detail::ErrorOf<8> {
  using ErrorOf::ErrorOf;
};  // non-finite values, or replicas that differ
struct UserError : detail::ErrorOf<9> {
  using ErrorOf::ErrorOf;
};  // an exception, other than gantry::Error, from the user's model, policy, criterion, data set or training loop
struct StopRequested : detail::ErrorOf<75> {
  using ErrorOf::ErrorOf;
};  // the run stopped on request, after saving a checkpoint

// Returns the element of `names` with the smallest edit distance to `name`, or "" if that distance is at least a third
// of the length of `name` plus 2.
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
