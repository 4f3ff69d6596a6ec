// The error text of a call that throws.
#pragma once

#include <string>

#include "gantry/core/error.h"

namespace gantry::testing {

// Returns the text of the error that `call` throws, or "no error". Errors of other types are not caught.
template <class Thrown = Error, class Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace gantry::testing
