// What members say of a collective that does not end, and how those that called different things find out.
#pragma once

#include <string>
#include <vector>

#include "gantry/comm/mpi/collective_call.h"
#include "gantry/comm/mpi/mpi_channel.h"

namespace gantry {

// What a collective waits for: `absent` members that have not joined, or, where it is empty, the others' parts.
// `passed_on`: what is awaited of them is made of other members' parts, so that they may have joined and wait
// themselves.
std::string describe_awaited(const MpiChannel& channel, const CollectiveCall& call, const std::vector<int>& absent,
                             bool passed_on);
// `received` bytes came from `peer` where `expected` belong; -1: more.
std::string describe_sizes(const MpiChannel& channel, const CollectiveCall& call, int peer, std::int64_t expected,
                           std::int64_t received);
// Whether a message of one of `missing` is of another call with this one's number; "" if none is.
std::string find_other_call(const MpiChannel& channel, const CollectiveCall& call, const std::vector<int>& missing);
// What members say when they differ in more than sizes. `theirs`: what the peer called.
std::string describe_calls(const MpiChannel& channel, const std::string& mine, int peer, const std::string& theirs);

}  // namespace gantry
