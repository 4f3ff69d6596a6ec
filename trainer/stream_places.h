// The places of streams in a checkpoint.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gantry/checkpoint/checkpoint.h"
#include "gantry/comm/process_group_mesh.h"
#include "gantry/data/data_loader.h"

namespace gantry {

// Returns the data of CheckpointInfo::progress: on rank 0 {"samples", "streams": [{"samples", "state"}]} with the
// streams of all replicas, whose states are in Base64; null on other ranks, which do not write it. Collective over the
// world.
nlohmann::json gather_stream_places(const DataLoader& loader, const ProcessGroupMesh& mesh);

// Returns the places of the streams of a checkpoint. If `loader` cannot continue there, `difference` gets the reason in
// one clause. Throws CheckpointError if the checkpoint is damaged.
LoaderPlace stream_places(const CheckpointInfo& info, const DataLoader& loader, std::string& difference);

}  // namespace gantry
