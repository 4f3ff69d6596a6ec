// The loops of a selective scan on the host, over kScanLanes channels side by side. Independent of LibTorch.
#pragma once

#include "gantry/tensors/kernels/selective_scan_element.h"

namespace gantry::kernels {

// The channels from group * kScanLanes on of a sample. Different groups and samples may run at the same time.
void scan_group(const ScanInputs<float>& of, const ScanResults<float>& to, std::int64_t sample, std::int64_t group);
void scan_group(const ScanInputs<double>& of, const ScanResults<double>& to, std::int64_t sample, std::int64_t group);
// The same for the gradients, in which the groups of b and c are these.
void scan_group_backward(const ScanInputs<float>& of, const ScanGradients<float>& to, std::int64_t sample,
                         std::int64_t group);
void scan_group_backward(const ScanInputs<double>& of, const ScanGradients<double>& to, std::int64_t sample,
                         std::int64_t group);

}  // namespace gantry::kernels
