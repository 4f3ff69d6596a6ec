// Elements that a thread reads and writes at once: 16 bytes, if the memory allows it.
#pragma once

#include <cstdint>

namespace gantry::kernels {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T of[kCount];
};

inline constexpr int kPackBytes = 16;

template <class T>
inline constexpr int kPackElements = kPackBytes / static_cast<int>(sizeof(T));

inline bool begins_with_pack(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % kPackBytes == 0; }

template <class T, int kCount>
__device__ __forceinline__ Pack<T, kCount> read_pack(const T* memory) {
  return *reinterpret_cast<const Pack<T, kCount>*>(memory);
}

template <class T, int kCount>
__device__ __forceinline__ void write_pack(T* memory, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(memory) = pack;
}

}  // namespace gantry::kernels
