// The bounds of one rendering: a template is untrusted input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace gantry::jinja {

struct Limits {
  std::int64_t steps = 10'000'000;             // evaluated nodes, and entries that operations look at
  std::int64_t bytes = 500'000'000;            // all values together, including released ones
  std::size_t output = std::size_t{64} << 20;  // bytes of the text
  int depth = 600;                             // nested expressions, statements, macro calls and values
};

// A failure of a rendering or of a template's syntax, in one line. The interpreter adds the place.
struct RenderError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The argument of raise_exception().
struct RaisedError : RenderError {
  using RenderError::RenderError;
};

// While it lives, this thread's operations on values count against `limits`. Not nested.
class Meter {
 public:
  explicit Meter(const Limits& limits);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
};

// Count on this thread's meter, if it has one. Throw RenderError beyond a limit.
void spend_steps(std::size_t steps);
void spend_bytes(std::size_t bytes);

// Throws RenderError for a text or list that an operation may not make at once.
void require_text_size(std::size_t count, std::size_t bytes_each);
void require_list_size(std::size_t count, std::size_t items_each);

// One level of nesting, of expressions, calls and values. The constructor throws RenderError beyond Limits::depth.
class Nesting {
 public:
  Nesting();
  ~Nesting();
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
};

}  // namespace gantry::jinja
