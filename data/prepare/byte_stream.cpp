// Files, standard input and memory as streams, and decompression by zlib and libzstd.
#include "data/prepare/byte_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#ifdef TRIREME_ZLIB
#include <zlib.h>
#endif
#ifdef TRIREME_ZSTD
#include <zstd.h>
#endif

#include "core/error.h"
#include "data/file_kind.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

/// `stored` itself, as a stream of its own.
class Uncompressed : public ByteStream {
 public:
  explicit Uncompressed(std::shared_ptr<StoredBytes> stored) : stored_(std::move(stored)) {}
  std::size_t read(std::span<char> bytes) override { return stored_->read(bytes); }

 private:
  std::shared_ptr<StoredBytes> stored_;
};

#if defined(TRIREME_ZLIB) || defined(TRIREME_ZSTD)
/// What decompressors share: a block of compressed bytes, and messages.
class Decompressor : public ByteStream {
 public:
  Decompressor(std::shared_ptr<StoredBytes> stored, fs::path path, const char* format)
      : stored_(std::move(stored)), path_(std::move(path)), format_(format), block_(1 << 17) {}

 protected:
  /// The compressed bytes not yet used; empty only at the end.
  std::span<const char> input() {
    if (used_ == filled_) {
      filled_ = stored_->read(block_);
      used_ = 0;
    }
    return std::span<const char>(block_).subspan(used_, filled_ - used_);
  }
  void use(std::size_t count) { used_ += count; }

  [[noreturn]] void refuse(std::string_view what) const {
    fail(ExitCode::data, "data", "{} byte {}: {}; expected {} data; bring back the whole file, or change its name",
         path_.string(), stored_->position() - (filled_ - used_), what, format_);
  }

 private:
  std::shared_ptr<StoredBytes> stored_;
  fs::path path_;
  const char* format_;
  std::vector<char> block_;
  std::size_t used_ = 0, filled_ = 0;
};
#endif

#ifdef TRIREME_ZLIB
class GzipBytes : public Decompressor {
 public:
  GzipBytes(std::shared_ptr<StoredBytes> stored, fs::path path)
      : Decompressor(std::move(stored), std::move(path), "gzip") {
    constexpr int gzip_only = 16;
    if (::inflateInit2(&state_, gzip_only + MAX_WBITS) != Z_OK)
      fail(ExitCode::retryable, "data", "there is no memory for zlib; expected 64 KiB");
  }
  ~GzipBytes() override { ::inflateEnd(&state_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  std::size_t read(std::span<char> bytes) override {
    std::size_t count = 0;
    while (count < bytes.size()) {
      const std::span<const char> compressed = input();
      if (compressed.empty()) {
        if (inside_) refuse("the file ends inside of compressed data");
        break;
      }
      if (!inside_ && compressed.front() == 0) {  // padding behind a piece, as on a tape
        use(1);
        continue;
      }
      const auto room = static_cast<uInt>(std::min<std::size_t>(bytes.size() - count, 1 << 30));
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));  // zlib only reads it
      state_.avail_in = static_cast<uInt>(compressed.size());
      state_.next_out = reinterpret_cast<Bytef*>(bytes.data() + count);
      state_.avail_out = room;
      const int status = ::inflate(&state_, Z_NO_FLUSH);
      use(compressed.size() - state_.avail_in);
      count += room - state_.avail_out;
      if (status == Z_STREAM_END) {
        ::inflateReset(&state_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        refuse(state_.msg != nullptr ? state_.msg : "not gzip");
      }
      inside_ = status != Z_STREAM_END;
    }
    return count;
  }

 private:
  z_stream state_{};
  bool inside_ = true;  // of a compressed piece; at first, because an empty file is none
};
#endif

#ifdef TRIREME_ZSTD
class ZstdBytes : public Decompressor {
 public:
  ZstdBytes(std::shared_ptr<StoredBytes> stored, fs::path path)
      : Decompressor(std::move(stored), std::move(path), "zstd"), state_(::ZSTD_createDStream()) {
    if (state_ == nullptr) fail(ExitCode::retryable, "data", "there is no memory for libzstd; expected 200 KiB");
  }
  ~ZstdBytes() override { ::ZSTD_freeDStream(state_); }
  ZstdBytes(const ZstdBytes&) = delete;
  ZstdBytes& operator=(const ZstdBytes&) = delete;

  std::size_t read(std::span<char> bytes) override {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    while (out.pos < out.size) {
      const std::span<const char> compressed = input();
      if (compressed.empty() && !inside_) break;
      ZSTD_inBuffer in{compressed.data(), compressed.size(), 0};
      const std::size_t before = out.pos, status = ::ZSTD_decompressStream(state_, &out, &in);
      use(in.pos);
      if (::ZSTD_isError(status) != 0) refuse(::ZSTD_getErrorName(status));
      inside_ = status != 0;
      if (compressed.empty() && inside_ && out.pos == before) refuse("the file ends inside of compressed data");
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* state_;
  bool inside_ = true;
};
#endif

[[noreturn]] [[maybe_unused]] void fail_without(const char* library, const char* package, const fs::path& path) {
  fail(ExitCode::usage, "data",
       "{} is compressed, and this build has no {}; expected it; install {} and build again, or decompress the file",
       path.string(), library, package);
}

}  // namespace

std::size_t FileBytes::read(std::span<char> bytes) {
  const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), file_.size() - position_));
  file_.read_at(position_, std::as_writable_bytes(bytes.first(count)));
  position_ += count;
  return count;
}

void FileBytes::seek(std::uint64_t position) {
  if (position > file_.size())
    fail(ExitCode::data, "data", "{} has {} bytes; expected at least {}", file_.path().string(), file_.size(),
         position);
  position_ = position;
}

std::size_t StandardInputBytes::read(std::span<char> bytes) {
  std::size_t count = 0;
  while (count < bytes.size()) {
    const ssize_t got = ::read(STDIN_FILENO, bytes.data() + count, bytes.size() - count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ExitCode::io, "data", "cannot read standard input: {}", std::generic_category().message(errno));
    if (got == 0) break;
    count += static_cast<std::size_t>(got);
  }
  position_ += count;
  return count;
}

std::size_t MemoryBytes::read(std::span<char> bytes) {
  const std::size_t count = bytes_.copy(bytes.data(), bytes.size(), position_);
  position_ += count;
  return count;
}

Compression compression_of(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".gz" ? Compression::gzip : ending == ".zst" ? Compression::zstd : Compression::none;
}

std::unique_ptr<ByteStream> decompressed(std::shared_ptr<StoredBytes> stored, Compression compression,
                                         const fs::path& path) {
  switch (compression) {
    case Compression::gzip:
#ifdef TRIREME_ZLIB
      return std::make_unique<GzipBytes>(std::move(stored), path);
#else
      fail_without("zlib", "zlib1g-dev", path);
#endif
    case Compression::zstd:
#ifdef TRIREME_ZSTD
      return std::make_unique<ZstdBytes>(std::move(stored), path);
#else
      fail_without("libzstd", "libzstd-dev", path);
#endif
    case Compression::none:
      break;
  }
  return std::make_unique<Uncompressed>(std::move(stored));
}

}  // namespace trireme
