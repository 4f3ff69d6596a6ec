// The text of a template as tokens, with trim_blocks and lstrip_blocks as transformers sets them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gantry/data/jinja/meter.h"
#include "gantry/data/jinja/value.h"

namespace gantry::jinja {

// Counted from 1, a column in bytes.
struct Place {
  int row = 1, column = 1;
};

struct Token {
  enum class Kind {
    kData,
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kText,
    kInteger,
    kReal,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  Place place;
  std::string text;  // as written; data and literals without escapes
  Integer integer = 0;
  double real = 0;
};

// The text is not a template: "row 3, column 7: ...".
struct SyntaxError : RenderError {
  SyntaxError(Place place, const std::string& fault);
};

// Throws SyntaxError.
std::vector<Token> tokens_of(const std::string& source);

// The text of a Python literal, which is passed without its quotes. Throws SyntaxError at `place`.
std::string unescaped(const std::string& literal, Place place);

}  // namespace gantry::jinja
