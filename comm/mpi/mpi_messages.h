// Messages between two ranks of a group. Each begins with a head that says what follows, so that a shape or dtype that
// was not expected is named rather than misread, and absent differs from empty. A small payload travels with the head,
// a larger one on the data communicator under a tag that the head names.
#pragma once

#include <memory>

#include "gantry/comm/mpi/mpi_channel.h"
#include "gantry/core/block_pool.h"
#include "gantry/tensors/tensor.h"

namespace gantry {

// What a send makes of the caller's tensor.
enum class SentMemory { kCopied, kGivenAway };

// `payload` numbers the channel's messages with a payload of their own; the caller counts. `pool` is of sends alone, or
// of receives alone.
std::shared_ptr<MpiOperation> make_send(const std::shared_ptr<BlockPool>& pool, std::shared_ptr<MpiChannel> channel,
                                        const torch::Tensor& tensor, SentMemory memory, int to, const Tag& tag,
                                        std::uint64_t payload);
std::shared_ptr<MpiOperation> make_receive(const std::shared_ptr<BlockPool>& pool, std::shared_ptr<MpiChannel> channel,
                                           const TensorSpec& spec, int from, const Tag& tag);

}  // namespace gantry
