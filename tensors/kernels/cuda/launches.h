// The kernels for CUDA, as what the host's compiler builds calls them: plain C++, so that neither compiler reads the
// other's headers. Each runs on `stream`, a cudaStream_t, of the current device, and gives CUDA's word for an error,
// null without one.
#pragma once

#include <cstdint>

#include "gantry/tensors/kernels/draw_element.h"

namespace gantry::kernels {

enum class Element : int { kFloat32, kFloat64, kFloat16, kBFloat16 };

const char* launch_draw(void* out, Element type, const Box& box, std::int64_t elements, const Drawn& drawn,
                        void* stream);

}  // namespace gantry::kernels
