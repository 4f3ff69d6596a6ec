#include "gantry/tensors/exceptions.h"

#include <new>

#include <c10/util/Exception.h>

#include "gantry/core/error.h"

namespace gantry {
namespace {

constexpr const char* kNoMemory =
    "memory: an allocation failed; use more tensor or pipeline ranks, or smaller microbatches";

// LibTorch's CPU allocator throws its general error.
bool is_out_of_memory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string(error.what_without_backtrace()).find("can't allocate memory") != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Failure describe_exception(std::exception_ptr exception) {
  try {
    std::rethrow_exception(std::move(exception));
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) return {ResourceError::kExitCode, kNoMemory};
    return {InternalError::kExitCode, first_line(error.what_without_backtrace())};
  } catch (const std::bad_alloc&) {
    return {ResourceError::kExitCode, kNoMemory};
  } catch (const std::exception& error) {
    return {InternalError::kExitCode, first_line(error.what())};
  } catch (...) {
    return {InternalError::kExitCode, "an exception that is not a std::exception"};
  }
}

}  // namespace gantry
