// What the launch and the shim of a rank say to each other, over TCP: frames of a kind and bytes.
//
// A frame is four bytes of length (big-endian, of the bytes alone), one of kind, and the bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace gantry::launcher {

enum class FrameKind : char {
  kHello = 'h',    // from the shim, first: Hello
  kCommand = 'c',  // to the shim, once: the program's arguments, each with a zero byte at its end
  kBegun = 'b',    // from the shim: the program's process
  kOutput = 'o',   // from the shim: bytes of the program's stdout,
  kErrors = 'e',   //                and of its stderr
  kSignal = 's',   // to the shim: a signal's number, for the program
  kKill = 'k',     // to the shim: end the program at once
  kStopped = 't',  // from the shim: the program was stopped by the signal of this number; 0: it goes on
  kAlive = 'a',    // from the shim, every second
  kTold = 'd',     // from the shim: mpirun has told this rank to end
  kEnd = 'x',      // from the shim, last: RankEnd
};

struct Frame {
  FrameKind kind;
  std::string bytes;
};

std::string encode(const Frame& frame);

// Frames out of bytes as they arrive. The other side may be anyone until its hello has been checked.
class FrameReader {
 public:
  static constexpr std::size_t kLargest = 1 << 20, kLargestHello = 4096;

  explicit FrameReader(std::size_t largest = kLargest) : largest_(largest) {}
  void allow(std::size_t largest) { largest_ = largest; }
  void add(std::string_view bytes);
  // The next whole frame. PeerError for a length beyond what is allowed: this is no shim.
  std::optional<Frame> next();

 private:
  std::string bytes_;
  std::size_t begin_ = 0;  // of what next() has not given
  std::size_t largest_;
};

struct Hello {
  std::string token;  // of this launch; whoever hasn't got it isn't heard
  int rank = 0;
  pid_t process = 0;  // of the program's shim
  std::string host;
};
std::string encode_hello(const Hello& hello);
std::optional<Hello> decode_hello(const std::string& bytes);

std::string encode_words(const std::vector<std::string>& words);
std::vector<std::string> decode_words(const std::string& bytes);

}  // namespace gantry::launcher
