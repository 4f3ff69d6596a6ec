// The memory of the pretended devices: two ranges of addresses at a fixed distance. Tensors have addresses of the first
// range, which no thread may ever touch; kernels work on the same place of the second one. So whatever reads device
// memory from the host ends at once, with its stack, whether or not a kernel runs meanwhile.
#pragma once

#include <cstddef>

namespace gantry::testing {

inline constexpr int kPretendDevices = 32;
inline constexpr int kPeerMemories = 8;                            // of other processes, at once
inline constexpr std::size_t kDeviceBytes = std::size_t{1} << 29;  // of each; only what is used costs memory

// A device's first address, as tensors have it.
char* device_memory(int device);
bool is_device_memory(const void* pointer);
int device_of(const void* device_pointer);

// Where a kernel finds what lies at a device's address; of any other pointer the pointer itself.
void* kernel_view(const void* pointer);

// The device's memory as a file, which other processes can map: before any of it is used. The same file each time.
int share_device_memory(int device);
// Another process's, from its file: device memory here too, at addresses of its own.
char* map_peer_memory(int file);
void unmap_peer_memory(char* memory);
bool is_peer_memory(const void* pointer);

// What a wrong access names beside its stack: the last operator that this thread gave to a device. Of static life.
void note_operator(const char* name);

}  // namespace gantry::testing
