// The memory of the pretended devices: two address ranges at a fixed distance. Tensors have addresses in the
// first range, which no thread can access. Kernels use the same offsets in the second range. Host code that
// accesses device memory therefore always ends the process at once and prints its stack, even while a kernel
// runs.
#pragma once

#include <cstddef>

namespace gantry::testing {

inline constexpr int kPretendDevices = 32;
inline constexpr int kPeerMemories = 8;                            // most mapped memories of other processes
inline constexpr std::size_t kDeviceBytes = std::size_t{1} << 29;  // per device; only used pages cost memory

// The first address of a device, in the range of the tensors.
char* device_memory(int device);
bool is_device_memory(const void* pointer);
int device_of(const void* device_pointer);

// Converts a device address to the address that kernels use. Any other pointer is returned unchanged.
void* kernel_view(const void* pointer);

// Moves the device's memory to a file that other processes can map, and returns the file. Call it before the
// memory is used. Further calls return the same file.
int share_device_memory(int device);
// Maps the device memory of another process from its file, at peer addresses, which are device memory here
// too.
char* map_peer_memory(int file);
void unmap_peer_memory(char* memory);
bool is_peer_memory(const void* pointer);

// Sets the last operator that this thread called on a device. The message for a wrong access prints it with
// the stack. `name` must stay valid.
void note_operator(const char* name);

}  // namespace gantry::testing
