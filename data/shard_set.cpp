// Sets of token shards: recognising one, and opening all its files as one sequence.
#include <algorithm>
#include <array>
#include <fstream>

#include "core/error.h"
#include "data/bin_tokens.h"
#include "data/shard_layout.h"
#include "data/token_shard.h"

namespace trireme {

namespace {

namespace fs = std::filesystem;
namespace layout = shard_layout;

std::vector<fs::path> shard_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == shard_extension) files.push_back(entry.path());
  }
  if (error) fail(ExitCode::io, "data", "cannot read the folder {}: {}", folder.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

/// Throws unless every shard was made with this tokenizer, and together they begin at 0, leave no gap and reach the
/// corpus's end.
void check_set(const std::vector<std::shared_ptr<const TokenShard>>& shards, const Tokenizer& tokenizer, bool whole) {
  const std::uint64_t hash = tokenizer.hash();
  std::int64_t next = whole ? 0 : shards.front()->header().first_token;
  for (const auto& shard : shards) {
    const ShardHeader& header = shard->header();
    if (header.tokenizer_hash != hash || header.vocab_size != tokenizer.vocab_size())
      fail(ExitCode::data, "token shard",
           "{} was made with another tokenizer than {} beside it; expected hash {:016x}, found {:016x}; make the "
           "shards again",
           shard->path().string(), shard_tokenizer_name, header.tokenizer_hash, hash);
    if (header.first_token != next)
      fail(ExitCode::data, "token shard",
           "{} starts at token {} of the corpus; expected {}: a shard is missing or too many; bring back the missing "
           "file, or make the shards again with prepare_data",
           shard->path().string(), header.first_token, next);
    next += header.tokens;
  }
  const TokenShard& end = *shards.back();
  if (whole && !end.header().last)
    fail(ExitCode::data, "token shard",
         "the corpus goes on after {}, which ends at token {}: the shards after it are missing; bring them back, or "
         "make the shards again with prepare_data",
         end.path().string(), next);
}

}  // namespace

bool is_shard_set(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return !shard_files(path).empty();
  if (path.extension() == shard_extension) return true;
  if (!fs::is_regular_file(path, error)) return false;
  std::array<char, layout::magic.size()> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  return std::string_view(start.data(), start.size()) == layout::magic;
}

ShardSet open_shards(const fs::path& path) {
  const bool folder = fs::is_directory(path);
  const std::vector<fs::path> files = folder ? shard_files(path) : std::vector{path};
  std::vector<std::shared_ptr<const TokenShard>> shards;
  for (const fs::path& file : files) shards.push_back(std::make_shared<const TokenShard>(file));
  const fs::path tokenizer_path = (folder ? path : path.parent_path()) / shard_tokenizer_name;
  if (!fs::exists(tokenizer_path))
    fail(ExitCode::data, "token shard",
         "{} is missing; expected the tokenizer beside the shards, as prepare_data leaves it", tokenizer_path.string());
  auto tokenizer = load_tokenizer(tokenizer_path);
  check_set(shards, *tokenizer, folder);
  return {joined({shards.begin(), shards.end()}), std::move(tokenizer)};
}

}  // namespace trireme
