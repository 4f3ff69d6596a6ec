#include "gantry/data/corpus/line_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include "gantry/core/error.h"
#include "gantry/core/mapped_file.h"
#ifdef GANTRY_WITH_ARROW
#include "gantry/data/corpus/parquet_file.h"
#endif

namespace gantry {
namespace {

#ifndef GANTRY_WITH_ARROW
[[noreturn]] std::unique_ptr<PieceReader> open_parquet(const std::filesystem::path& path) {
  throw InputError({path.string(), "this build of Gantry does not read Parquet files, because it has no Arrow",
                    "JSON lines", "convert the file, or build Gantry with GANTRY_WITH_ARROW=ON"});
}
#endif

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr int kLargestWindow = 27;  // base 2 logarithm of the bytes that a decompressor may need, 128 MiB

[[noreturn]] void refuse_damaged(const std::filesystem::path& path, const std::string& reason) {
  throw InputError({path.string(), "the file cannot be decompressed: " + reason, "a complete file",
                    "copy or compress the file again"});
}

class PlainPieces final : public PieceReader {
 public:
  explicit PlainPieces(const std::filesystem::path& path) : file_(path) {}

  std::string_view next() override {
    const auto piece = file_.text().substr(at_, kPieceBytes);
    at_ += piece.size();
    return piece;
  }
  std::int64_t consumed() const override { return static_cast<std::int64_t>(at_); }

 private:
  MappedFile file_;
  std::size_t at_ = 0;
};

class GzipPieces final : public PieceReader {
 public:
  explicit GzipPieces(const std::filesystem::path& path) : path_(path), bytes_(kPieceBytes) {
    const MappedFile readable(path);  // throws if it is not
    file_ = ::gzopen(path.c_str(), "rb");
    if (file_ == nullptr) throw InputError({path.string(), std::strerror(errno), "a file that can be read", ""});
  }
  ~GzipPieces() override { ::gzclose(file_); }
  GzipPieces(const GzipPieces&) = delete;
  GzipPieces& operator=(const GzipPieces&) = delete;

  std::string_view next() override {
    const int count = ::gzread(file_, bytes_.data(), static_cast<unsigned>(bytes_.size()));
    int error = Z_OK;
    const char* reason = ::gzerror(file_, &error);  // a file that ends too early gives its last bytes, and an error
    if (count < 0 || error != Z_OK) refuse_damaged(path_, reason);
    if (count > 0 && ::gzdirect(file_) == 1) refuse_damaged(path_, "it is not in gzip's format");
    return {bytes_.data(), static_cast<std::size_t>(count)};
  }
  std::int64_t consumed() const override { return static_cast<std::int64_t>(::gzoffset(file_)); }

 private:
  std::filesystem::path path_;
  std::vector<char> bytes_;
  gzFile file_ = nullptr;
};

class ZstandardPieces final : public PieceReader {
 public:
  explicit ZstandardPieces(const std::filesystem::path& path)
      : file_(path), bytes_(kPieceBytes), input_{file_.data(), file_.size(), 0} {
    ::ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kLargestWindow);
  }

  std::string_view next() override {
    while (input_.pos < input_.size || !is_frame_complete_) {
      const std::size_t before = input_.pos;
      ZSTD_outBuffer output{bytes_.data(), bytes_.size(), 0};
      const std::size_t left = ::ZSTD_decompressStream(context_.get(), &output, &input_);
      if (::ZSTD_isError(left)) refuse_damaged(file_.path(), ::ZSTD_getErrorName(left));
      is_frame_complete_ = left == 0;
      if (output.pos > 0) return {bytes_.data(), output.pos};
      if (input_.pos == before && !is_frame_complete_) refuse_damaged(file_.path(), "it ends too early");
    }
    return {};
  }
  std::int64_t consumed() const override { return static_cast<std::int64_t>(input_.pos); }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ::ZSTD_freeDCtx(context); }
  };

  MappedFile file_;
  std::vector<char> bytes_;
  std::unique_ptr<ZSTD_DCtx, Free> context_{::ZSTD_createDCtx()};
  ZSTD_inBuffer input_;
  bool is_frame_complete_ = true;
};

}  // namespace

bool is_json_lines_file(const std::filesystem::path& path) {
  const std::string name = path.string();
  return std::ranges::any_of(std::vector{".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet"},
                             [&](const char* ending) { return name.ends_with(ending); });
}

std::unique_ptr<PieceReader> open_pieces(const std::filesystem::path& path) {
  if (path.extension() == ".gz") return std::make_unique<GzipPieces>(path);
  if (path.extension() == ".zst") return std::make_unique<ZstandardPieces>(path);
  if (path.extension() == ".parquet") return open_parquet(path);
  return std::make_unique<PlainPieces>(path);
}

bool LineFile::next(std::string& line) {
  line.clear();
  for (bool has_begun = false;; has_begun = true) {
    if (piece_.empty() && (piece_ = pieces_->next()).empty()) {
      number_ += has_begun ? 1 : 0;
      return has_begun;
    }
    const auto end = piece_.find('\n');
    line.append(piece_.substr(0, end));
    piece_.remove_prefix(std::min(end, piece_.size() - 1) + 1);
    if (end == std::string_view::npos) continue;
    ++number_;
    return true;
  }
}

void LineFile::read_rest(std::string& text) {
  text.clear();
  do text.append(piece_);
  while (!(piece_ = pieces_->next()).empty());
}

}  // namespace gantry
