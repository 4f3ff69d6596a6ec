#include "gantry/comm/world.h"

namespace gantry {

World::World(Backend& backend, Config config, Mesh mesh)
    : backend_(backend), config_(std::move(config)), mesh_(std::move(mesh)) {}

}  // namespace gantry
