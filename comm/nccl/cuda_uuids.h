// Which CUDA devices a process sees: CUDA_VISIBLE_DEVICES may say the same ones in different words, or in another
// order.
#pragma once

#include <string>
#include <vector>

namespace gantry {

// 16 bytes each, in the order of their indices. Asked of the driver, which is loaded when this is called: nothing is
// linked to it. Empty without a driver or devices; ResourceError for a device that does not say.
std::vector<std::string> visible_device_uuids();

}  // namespace gantry
