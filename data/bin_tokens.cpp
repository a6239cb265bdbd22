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
#include "data/stand_in.h"
#include "data/token_shard.h"
#include "data/utf8.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMagic = 20240520, kVersion = 1, kMagicOfLlama = 20240801;
constexpr std::size_t kHeaderBytes = 256 * 4, kWidth = 2;

template <class Expected, class Found>
[[noreturn]] void refuse(const fs::path& path, std::size_t byte, std::string_view what, const Expected& expected,
                         const Found& found) {
  fail(ExitCode::data, "tokens", "{} byte {}: {}; expected {}, found {}; make the file again", path.string(), byte,
       what, expected, found);
}

/// Numbers with which other files of llm.c begin.
struct OtherFile {
  std::int32_t magic;
  std::string_view what;
};
constexpr std::array other_files = {
    OtherFile{kMagicOfLlama, "tokens of llm.c for Llama 3, whose ids have 4 bytes"},
    OtherFile{20240522, "questions of llm.c, to be answered in evaluations"}, OtherFile{20240326, "a model of llm.c"},
    OtherFile{20240327, "a state of llm.c, for its tests"}, OtherFile{20240328, "a tokenizer of llm.c"}};

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
  return number == kMagic || number == kMagicOfLlama;
}

constexpr std::int32_t swapped_bytes(std::int32_t number) {
  const auto bits = static_cast<std::uint32_t>(number);
  return static_cast<std::int32_t>(bits >> 24 | (bits >> 8 & 0xFF00U) | (bits << 8 & 0xFF0000U) | bits << 24);
}

constexpr std::string_view advice = "give ids of 2 bytes, or have prepare_data make shards of the text itself";

void refuse_other_files(std::span<const std::byte> content, const fs::path& path) {
  if (content.size() < sizeof(std::int32_t)) return;
  const std::int32_t magic = number_at(content, 0);
  for (const OtherFile& other : other_files)
    if (magic == other.magic)
      fail(ExitCode::data, "tokens", "{} begins with {}: {}; expected ids of 2 bytes; {}", path.string(), magic,
           other.what, advice);
  if (magic == swapped_bytes(kMagic))
    fail(ExitCode::data, "tokens",
         "{} is a token file of llm.c with big-endian numbers; expected little-endian ones; {}", path.string(), advice);
}

/// Whether nothing but printable text is in the first bytes. In ids this would be rare: both bytes of each would have
/// to be printable.
bool begins_as_text(std::span<const std::byte> content) {
  constexpr std::size_t most = 1 << 16, longest_character = 4;
  const std::string_view head(reinterpret_cast<const char*>(content.data()), std::min(content.size(), most));
  const bool controls = std::any_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f') || byte == 0x7F;
  });
  const std::size_t valid = valid_utf8_prefix(head);
  const bool cut = head.size() < content.size() && valid + longest_character > head.size();  // within a character
  return !controls && (valid == head.size() || cut);
}

/// 4 or 8 if these are ids of as many bytes, of which only the lower 2 are in use; otherwise 2. A few ids prove
/// nothing, nor do zeros alone.
std::size_t width_of_ids(std::span<const std::byte> content) {
  constexpr std::size_t fewest = 16;
  if (content.size() < 2 * fewest) return 2;
  bool used = false;
  std::size_t width = 8;
  for (std::size_t at = 0; at + 1 < content.size(); at += 2) {
    const bool zero = content[at] == std::byte{0} && content[at + 1] == std::byte{0};
    if (!zero && at % 4 != 0) return 2;
    if (!zero && at % 8 != 0) width = 4;
    used = used || !zero;
  }
  while (content.size() % width != 0) width /= 2;
  return used ? width : 2;
}

void require_narrow(std::int64_t vocab_size) {
  if (vocab_size > 65536)
    fail(ExitCode::usage, "tokens",
         "the tokenizer has {} tokens, and files of nanoGPT and llm.c have ids of 2 bytes; expected at most 65536 "
         "tokens; choose another tokenizer, or shards of ours (prepare_data --shard-format trireme)",
         vocab_size);
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
        fail(ExitCode::data, "tokens", "{}: token {} is {}; expected 0 to {}; {}", path.string(), i, ids_[i],
             vocab_size - 1,
             is_big_endian(vocab_size) ? "the ids are big-endian: write them little-endian (NumPy: astype('<u2'))"
                                       : "give the tokenizer that the file was made with (--tokenizer)");
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
  /// Whether all ids are in the vocabulary if their bytes are swapped.
  bool is_big_endian(std::int64_t vocab_size) const {
    return std::all_of(ids_, ids_ + count_,
                       [&](std::uint16_t id) { return (id >> 8 | (id & 0xFF) << 8) < vocab_size; });
  }

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
  refuse_other_files(content, path);
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
  refuse_stand_in({reinterpret_cast<const char*>(content.data()), content.size()}, path);
  refuse_other_files(content, path);
  if (begins_as_text(content))
    fail(ExitCode::data, "tokens",
         "{} is a text, and its name that of token ids; expected ids of 2 bytes; give the text another ending, such as "
         ".txt",
         path.string());
  if (const std::size_t width = width_of_ids(content); width != kWidth)
    fail(ExitCode::data, "tokens",
         "{} has ids of {} bytes: as ids of 2 bytes, {} would be 0; expected ids of 2 bytes; {}", path.string(), width,
         width == 4 ? "every second one" : "three of four", advice);
  if (content.size() % kWidth != 0)
    refuse(path, content.size() - 1, "half an id at the end", "ids of 2 bytes",
           fmt::format("{} bytes", content.size()));
  return static_cast<std::int64_t>(content.size() / kWidth);
}

BinTokens open_bins(const fs::path& path, std::int64_t vocab_size) {
  const TokenFormat format = token_format(path);
  require(format == TokenFormat::nanogpt || format == TokenFormat::llmc, "tokens", "{} has no such tokens",
          path.string());
  require_narrow(vocab_size);
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
  require_narrow(vocab_size);
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
