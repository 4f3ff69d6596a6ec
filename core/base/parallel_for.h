// Independent work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace gantry {

// Calls `work` once for each number from 0 to count - 1, on at most `threads` threads of which the caller is one, and
// returns when all have returned. After an exception no further call begins. Throws the exception of the smallest
// number.
void parallel_for(std::size_t count, std::size_t threads, const std::function<void(std::size_t)>& work);

}  // namespace gantry
