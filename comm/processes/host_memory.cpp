#include "gantry/comm/processes/host_memory.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gantry {
namespace {

// A piece begins and ends at a cache line, which needs up to two additional lines per piece. The same amount
// is kept in reserve.
constexpr std::int64_t kSpareBytesAMember = 256;

std::int64_t bytes_of_slot(int members, std::int64_t chunk_bytes) {
  return whole_pages(chunk_bytes + members * kSpareBytesAMember);
}

std::int64_t parts_bytes(int members) {
  return whole_pages(std::int64_t{members} * members * HostRing::kDepth *
                     static_cast<std::int64_t>(sizeof(std::int64_t)));
}

char* map(int descriptor, std::size_t bytes) {
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, descriptor, 0);
  return data == MAP_FAILED ? nullptr : static_cast<char*>(data);
}

// Returns null and sets errno on failure.
char* map_file_of(const HostMemory::Address& address, std::size_t bytes) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;
  struct stat status;
  char* data = nullptr;
  errno = ENOENT;  // another process has that number here
  if (::fstat(descriptor, &status) == 0 && status.st_dev == address.device && status.st_ino == address.inode)
    data = map(descriptor, bytes);
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return data;
}

}  // namespace

HostMemory::Offer::Offer(std::size_t bytes) : address_{::getpid(), ::memfd_create("gantry", MFD_CLOEXEC)} {
  const int descriptor = static_cast<int>(address_.descriptor);
  struct stat status;
  if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 || ::fstat(descriptor, &status) != 0) {
    address_.error = errno;
    return;
  }
  address_.device = status.st_dev;
  address_.inode = status.st_ino;
}

HostMemory::Offer::~Offer() {
  if (address_.descriptor >= 0) ::close(static_cast<int>(address_.descriptor));
}

std::shared_ptr<HostMemory> HostMemory::open(const Address& address, std::size_t bytes, int& error) {
  error = static_cast<int>(address.error);
  if (error != 0) return nullptr;
  if (char* data = map_file_of(address, bytes)) return std::shared_ptr<HostMemory>(new HostMemory(data, bytes));
  error = errno;
  return nullptr;
}

std::string HostMemory::describe_trouble(const Address& address, std::size_t bytes, int error) {
  return fmt::format("{} of {} bytes: {}", address.error != 0 ? "memfd_create" : "opening its process's memfd in /proc",
                     bytes, std::strerror(error));
}

std::shared_ptr<HostMemory> HostMemory::own(std::size_t bytes) {
  char* data = map(-1, bytes);
  if (!data) throw std::bad_alloc();
  return std::shared_ptr<HostMemory>(new HostMemory(data, bytes));
}

HostMemory::~HostMemory() { ::munmap(data_, bytes_); }

std::size_t HostRing::memory_bytes(int members, std::int64_t chunk_bytes) {
  return static_cast<std::size_t>(lines_bytes(members) + parts_bytes(members) +
                                  std::int64_t{members} * kDepth * bytes_of_slot(members, chunk_bytes));
}

HostRing::HostRing(std::shared_ptr<HostMemory> memory, int members, int me, std::int64_t chunk_bytes)
    : memory_(std::move(memory)),
      members_(members),
      me_(me),
      chunk_bytes_(chunk_bytes),
      slot_bytes_(bytes_of_slot(members, chunk_bytes)),
      lines_(reinterpret_cast<Line*>(memory_->data())),
      parts_(reinterpret_cast<std::int64_t*>(memory_->data() + lines_bytes(members))),
      slots_(reinterpret_cast<char*>(parts_) + parts_bytes(members)) {}

}  // namespace gantry
