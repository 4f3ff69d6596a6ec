// What a call that is refused says.
#pragma once

#include <string>

#include "gantry/core/error.h"

namespace gantry::testing {

// The text of the error that it throws; "no error" if it throws none. Errors of other kinds pass.
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
