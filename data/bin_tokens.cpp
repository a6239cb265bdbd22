#include "data/bin_tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/io.h"
#include "data/mapped_file.h"
#include "data/token_shard.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMagic = 20240520, kVersion = 1;
constexpr std::size_t kHeaderBytes = 256 * 4, kWidth = 2;

template <class Expected, class Found>
[[noreturn]] void refuse(const fs::path& path, std::size_t byte, std::string_view what, const Expected& expected,
                         const Found& found) {
  fail(ExitCode::data, "tokens", "{} byte {}: {}; expected {}, found {}; make the file again", path.string(), byte,
       what, expected, found);
}

std::int32_t number_at(std::span<const std::byte> content, std::size_t index) {
  std::int32_t number = 0;
  std::memcpy(&number, content.data() + 4 * index, sizeof number);
  return number;
}

bool begins_as_llmc(const fs::path& path) {
  std::int32_t number = 0;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&number), sizeof number);
  return number == kMagic;
}

bool is_validation(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("val") || name.find("_val_") != std::string::npos || name.find("_val.") != std::string::npos;
}

std::vector<fs::path> bin_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : list_folder(folder))
    if (fs::path(name).extension() == bin_extension) files.push_back(folder / name);
  return files;
}

TokenFormat format_of_file(const fs::path& path) {
  if (path.extension() != bin_extension) return TokenFormat::none;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return TokenFormat::none;
  return begins_as_llmc(path) ? TokenFormat::llmc : TokenFormat::nanogpt;
}

/// One file of 2-byte ids.
class BinFile : public TokenSource {
 public:
  BinFile(const fs::path& path, TokenFormat format, std::int64_t vocab_size) : file_(path) {
    const bool has_header = format == TokenFormat::llmc;
    count_ = has_header ? parse_llmc_header(file_.bytes(), path) : parse_nanogpt(file_.bytes(), path);
    ids_ = reinterpret_cast<const std::uint16_t*>(file_.bytes().data() + (has_header ? kHeaderBytes : 0));
    for (std::int64_t i = 0; i < count_; ++i) {
      if (ids_[i] >= vocab_size) [[unlikely]]
        fail(ExitCode::data, "tokens",
             "{}: token {} is {}; expected 0 to {}; give the tokenizer that the file was made with (--tokenizer)",
             path.string(), i, ids_[i], vocab_size - 1);
    }
    file_.require_whole();
  }

  std::int64_t count() const override { return count_; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    require(first >= 0 && first <= count_ - static_cast<std::int64_t>(out.size()), "tokens",
            "asked for {} tokens from {} on; there are {}", out.size(), first, count_);
    std::copy_n(ids_ + first, out.size(), out.begin());
    file_.require_whole();
  }

 private:
  MappedFile file_;
  std::int64_t count_ = 0;
  const std::uint16_t* ids_ = nullptr;
};

class JoinedSources : public TokenSource {
 public:
  explicit JoinedSources(std::vector<std::shared_ptr<const TokenSource>> sources) : sources_(std::move(sources)) {
    for (const auto& source : sources_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + source->count());
  }

  std::int64_t count() const override { return ends_.back(); }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    while (!out.empty()) {
      require(at < sources_.size(), "tokens", "asked for tokens beyond the last of {}", count());
      const auto piece = std::min(out.size(), static_cast<std::size_t>(ends_[at] - first));
      sources_[at]->read(first - (ends_[at] - sources_[at]->count()), out.first(piece));
      first += static_cast<std::int64_t>(piece);
      out = out.subspan(piece);
      ++at;
    }
  }

 private:
  std::vector<std::shared_ptr<const TokenSource>> sources_;
  std::vector<std::int64_t> ends_;
};

void write_file_of(const TokenRange& tokens, TokenFormat format, const fs::path& path) {
  constexpr std::int64_t kBlock = 1 << 18;
  AtomicFile file(path, kHeaderBytes + kWidth * static_cast<std::uint64_t>(tokens.count()));
  if (format == TokenFormat::llmc) {
    std::array<std::int32_t, 256> header{};
    header[0] = kMagic;
    header[1] = kVersion;
    header[2] = static_cast<std::int32_t>(tokens.count());
    file.write(std::as_bytes(std::span(header)));
  }
  std::vector<std::int32_t> ids;
  std::vector<std::uint16_t> narrow;
  for (std::int64_t first = 0; first < tokens.count(); first += kBlock) {
    ids.resize(static_cast<std::size_t>(std::min(kBlock, tokens.count() - first)));
    tokens.read(first, ids);
    narrow.resize(ids.size());
    std::transform(ids.begin(), ids.end(), narrow.begin(),
                   [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
    file.write(std::as_bytes(std::span(narrow)));
  }
  file.commit();
}

}  // namespace

TokenFormat token_format(const fs::path& path) {
  if (is_shard_set(path)) return TokenFormat::trireme;
  std::error_code error;
  if (!fs::is_directory(path, error)) return format_of_file(path);
  TokenFormat found = TokenFormat::none;
  for (const fs::path& file : bin_files(path)) {
    const TokenFormat format = format_of_file(file);
    const std::string name = file.filename().string();
    if (format == TokenFormat::llmc || name == "train.bin" || name == "val.bin") found = std::max(found, format);
  }
  return found;
}

std::int64_t parse_llmc_header(std::span<const std::byte> content, const fs::path& path) {
  if (content.size() < kHeaderBytes)
    refuse(path, content.size(), "the file ends inside the header", fmt::format("{} bytes of header", kHeaderBytes),
           fmt::format("{} bytes", content.size()));
  if (const std::int32_t magic = number_at(content, 0); magic != kMagic)
    refuse(path, 0, "not a token file of llm.c", kMagic, magic);
  if (const std::int32_t version = number_at(content, 1); version != kVersion)
    refuse(path, 4, "unknown version", kVersion, version);
  const std::int32_t count = number_at(content, 2);
  if (count <= 0) refuse(path, 8, "no tokens", "at least one", count);
  const std::uint64_t size = kHeaderBytes + kWidth * static_cast<std::uint64_t>(count);
  if (size != content.size())
    refuse(path, std::min<std::uint64_t>(size, content.size()), "the file has the wrong size",
           fmt::format("{} bytes for {} tokens", size, count), fmt::format("{} bytes", content.size()));
  return count;
}

std::int64_t parse_nanogpt(std::span<const std::byte> content, const fs::path& path) {
  if (content.empty()) refuse(path, 0, "the file is empty", "ids of 2 bytes", "0 bytes");
  if (content.size() % kWidth != 0)
    refuse(path, content.size() - 1, "half an id at the end", "ids of 2 bytes",
           fmt::format("{} bytes", content.size()));
  return static_cast<std::int64_t>(content.size() / kWidth);
}

BinTokens open_bins(const fs::path& path, std::int64_t vocab_size) {
  const TokenFormat format = token_format(path);
  require(format == TokenFormat::nanogpt || format == TokenFormat::llmc, "tokens", "{} has no such tokens",
          path.string());
  std::vector<std::shared_ptr<const TokenSource>> train, validation;
  const bool folder = fs::is_directory(path);
  for (const fs::path& file : folder ? bin_files(path) : std::vector{path}) {
    if (folder && format_of_file(file) != format) continue;
    (folder && is_validation(file) ? validation : train).push_back(std::make_shared<BinFile>(file, format, vocab_size));
  }
  if (train.empty())
    fail(ExitCode::data, "tokens",
         "{} has tokens for validation, but none to train on; expected train.bin, or *_train_*.bin", path.string());
  return {joined(std::move(train)), validation.empty() ? nullptr : joined(std::move(validation))};
}

int write_bins(const TokenRange& tokens, TokenFormat format, const fs::path& folder, std::string_view name,
               std::int64_t vocab_size, std::int64_t file_tokens) {
  if (vocab_size > 65536)
    fail(ExitCode::usage, "tokens",
         "the tokenizer has {} tokens, and files of nanoGPT and llm.c have ids of 2 bytes; expected at most 65536 "
         "tokens; "
         "choose another tokenizer, or --shard-format trireme",
         vocab_size);
  if (format == TokenFormat::nanogpt) {
    write_file_of(tokens, format, folder / fmt::format("{}{}", name, bin_extension));
    return 1;
  }
  const std::int64_t most = std::min<std::int64_t>(file_tokens, std::numeric_limits<std::int32_t>::max());
  int files = 0;
  for (std::int64_t first = 0; first < tokens.count(); first += most, ++files)
    write_file_of(tokens.part(first, std::min(most, tokens.count() - first)), format,
                  folder / fmt::format("{}_{:06}{}", name, files, bin_extension));
  return files;
}

std::shared_ptr<const TokenSource> joined(std::vector<std::shared_ptr<const TokenSource>> sources) {
  require(!sources.empty(), "tokens", "no sources; expected at least one");
  if (sources.size() == 1) return std::move(sources.front());
  return std::make_shared<JoinedSources>(std::move(sources));
}

}  // namespace trireme
