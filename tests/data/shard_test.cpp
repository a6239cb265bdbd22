// Token shards: what is written is read back, and every kind of damage is refused with its place.
#include "data/token_shard.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>

#include "core/hash.h"
#include "core/io.h"
#include "data/byte_tokenizer.h"
#include "data/char_tokenizer.h"
#include "data/shard_layout.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

std::vector<std::int32_t> random_ids(std::mt19937_64& random, std::size_t count, std::int32_t vocab) {
  std::vector<std::int32_t> ids(count);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab));
  return ids;
}

std::vector<std::int32_t> read_all(const TokenSource& source) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(source.count()));
  source.read(0, ids);
  return ids;
}

/// A vocabulary of 70,000 characters, so that tokens need i32.
CharTokenizer wide_tokenizer() {
  std::vector<char32_t> characters;
  for (char32_t value = 0x10000; value < 0x10000 + 70'000; ++value) characters.push_back(value);
  return CharTokenizer(characters);
}

/// The bytes of one good shard: 1,000 byte tokens, documents at 0 and 500.
std::string good_shard(const TempFolder& folder) {
  std::mt19937_64 random(1);
  ShardWriter writer(folder.path(), ByteTokenizer(), 10'000);
  for (int document = 0; document < 2; ++document) {
    writer.start_document();
    writer.append(random_ids(random, 500, 256));
  }
  writer.finish();
  return read_file(folder / "tokens_00000.tokens");
}

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// Makes both hashes fit again, as a forger or a bug in the writer would.
void rehash(std::string& bytes) {
  put(bytes, shard_layout::payload_hash_at, hash_bytes(std::string_view(bytes).substr(shard_layout::header_bytes)));
  put(bytes, shard_layout::header_hash_at, hash_bytes(std::string_view(bytes).substr(0, shard_layout::header_hash_at)));
}

}  // namespace

TEST_CASE("shards of any size hold the same sequence, in u16 and i32") {
  std::mt19937_64 random(2);
  const CharTokenizer wide = wide_tokenizer();
  const ByteTokenizer narrow;
  for (const Tokenizer* tokenizer : {static_cast<const Tokenizer*>(&wide), static_cast<const Tokenizer*>(&narrow)}) {
    for (const std::int64_t shard_tokens : {10, 333, 100'000}) {
      const TempFolder folder;
      tokenizer->save(folder / shard_tokenizer_name);
      std::vector<std::int32_t> all;
      ShardWriter writer(folder.path(), *tokenizer, shard_tokens);
      for (const std::size_t length : {std::size_t{0}, std::size_t{40}, std::size_t{1}, std::size_t{300}}) {
        const auto ids = random_ids(random, length, tokenizer->vocab_size());
        writer.start_document();
        writer.append(ids);
        all.insert(all.end(), ids.begin(), ids.end());
      }
      writer.finish();
      CHECK(writer.tokens() == 341);
      CHECK(writer.shards() == (341 + shard_tokens - 1) / shard_tokens);
      const ShardSet set = open_shards(folder.path());
      CHECK(set.tokenizer->hash() == tokenizer->hash());
      CHECK(read_all(*set.tokens) == all);
      // Pieces across shard borders.
      for (int round = 0; round < 20; ++round) {
        const auto first = static_cast<std::int64_t>(random() % 341);
        std::vector<std::int32_t> piece(random() % static_cast<std::uint64_t>(341 - first + 1));
        set.tokens->read(first, piece);
        CHECK(std::equal(piece.begin(), piece.end(), all.begin() + first));
      }
    }
  }
}

TEST_CASE("document starts are kept, relative to their shard") {
  const TempFolder folder;
  ShardWriter writer(folder.path(), ByteTokenizer(), 4);
  for (const int length : {3, 1, 0, 2, 5}) {
    writer.start_document();
    writer.append(std::vector<std::int32_t>(static_cast<std::size_t>(length), 65));
  }
  writer.finish();  // documents at 0, 3, 4, 6 of 11 tokens; the empty one starts where the next does
  using Starts = std::vector<std::int64_t>;
  CHECK(TokenShard(folder / "tokens_00000.tokens").document_starts() == Starts{0, 3});
  CHECK(TokenShard(folder / "tokens_00001.tokens").document_starts() == Starts{0, 2});
  CHECK(TokenShard(folder / "tokens_00002.tokens").document_starts() == Starts{});
}

TEST_CASE("every truncation and every flipped bit of a shard is refused") {
  const TempFolder folder;
  const std::string good = good_shard(folder);
  const auto path = folder / "bad.tokens";
  for (std::size_t size = 0; size < good.size(); size += size < 100 ? 1 : 97) {
    write_plainly(path, std::string_view(good).substr(0, size));
    const Caught error = caught([&] { TokenShard{path}; });
    CAPTURE(size);
    REQUIRE(error.code == ExitCode::data);
    REQUIRE(error.has(path.string() + " byte "));
  }
  write_file(path, good + "x");
  CHECK(caught([&] { TokenShard{path}; }).has(fmt::format("byte {}: the file has the wrong size", good.size())));
  std::mt19937_64 random(3);
  for (std::size_t at = 0; at < good.size(); at += at < 88 ? 1 : 61) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    write_plainly(path, flipped);
    CAPTURE(at);
    REQUIRE(caught([&] { TokenShard{path}; }).code == ExitCode::data);
  }
  write_file(path, good);
  CHECK(TokenShard(path).count() == 1000);
}

TEST_CASE("each field has its own message, also when the hashes fit") {
  const TempFolder folder;
  const std::string good = good_shard(folder);
  const auto path = folder / "bad.tokens";
  const auto refused = [&](const std::function<void(std::string&)>& change, bool fix_hashes) {
    std::string bytes = good;
    change(bytes);
    if (fix_hashes) rehash(bytes);
    write_plainly(path, bytes);
    const Caught error = caught([&] { TokenShard{path}; });
    CHECK(error.code == ExitCode::data);
    return error.message;
  };
  const auto says = [](const std::string& message, std::string_view part) {
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  says(refused([](std::string& b) { b[0] = 'X'; }, true), "byte 0: not a token shard");
  says(refused([](std::string& b) { put(b, 8, std::uint32_t{9}); }, true),
       "byte 8: unknown version; expected 2, found 9");
  says(refused([](std::string& b) { put(b, 12, std::uint32_t{3}); }, true), "byte 12: unknown token type");
  says(refused([](std::string& b) { put(b, 16, std::uint64_t{0}); }, true), "byte 16: the shard is empty");
  says(refused([](std::string& b) { put(b, 48, kHuge); }, true), "byte 48: impossible vocabulary size");
  says(refused([](std::string& b) { put(b, 56, std::uint64_t{2}); }, true), "byte 56: unknown mark of the last shard");
  says(refused([](std::string& b) { put(b, 32, kHuge); }, true), "byte 32: impossible position");
  // Counts whose product with the element size wraps around to something small.
  for (const std::uint64_t count : {kHuge, (std::uint64_t{1} << 63) + 1000, std::uint64_t{1} << 61}) {
    says(refused([&](std::string& b) { put(b, 16, count); }, true), "byte 16: more tokens than the file holds");
    says(refused([&](std::string& b) { put(b, 24, count); }, true), "byte 24: more documents than the file holds");
  }
  says(refused([](std::string& b) { put(b, 16, std::uint64_t{990}); }, true), "the file has the wrong size");
  says(refused([](std::string& b) { b[20] = 1; }, false), "byte 72: the header is damaged");
  says(refused([](std::string& b) { b[100] ^= 1; }, false), "byte 80: the tokens are damaged");
  says(refused([](std::string& b) { put(b, 80 + 2 * 17, std::uint16_t{256}); }, true),
       "byte 114: token 17 is 256; expected 0 to 255");
  says(refused([](std::string& b) { put(b, 80 + 2000 + 8, std::uint64_t{0}); }, true),
       "byte 2088: a document start is out of order");
  says(refused([](std::string& b) { put(b, 80 + 2000 + 8, std::uint64_t{1000}); }, true),
       "a document start is out of order");
}

TEST_CASE("a set with a missing, foreign or doubled shard is refused") {
  const TempFolder folder;
  const auto fill = [&](const Tokenizer& tokenizer, const std::filesystem::path& where) {
    std::filesystem::create_directories(where);
    tokenizer.save(where / shard_tokenizer_name);
    ShardWriter writer(where, tokenizer, 10);
    writer.append(std::vector<std::int32_t>(35, 1));
    writer.finish();
  };
  namespace fs = std::filesystem;
  const auto refused = [](const fs::path& path) {
    const Caught error = caught([&] { open_shards(path); });
    CHECK(error.code == ExitCode::data);
    return error;
  };
  fill(ByteTokenizer(), folder / "a");
  fs::remove(folder / "a" / "tokens_00001.tokens");
  CHECK(refused(folder / "a").has("starts at token 20 of the corpus; expected 10"));
  fill(ByteTokenizer(), folder / "b");
  fs::copy(folder / "b" / "tokens_00003.tokens", folder / "b" / "tokens_00004.tokens");
  CHECK(refused(folder / "b").has("expected 35"));
  fill(ByteTokenizer(), folder / "c");
  const std::string_view text = "abc";
  CharTokenizer::from_texts({&text, 1}).save(folder / "c" / shard_tokenizer_name);
  CHECK(refused(folder / "c").has("another tokenizer"));
  fs::remove(folder / "c" / shard_tokenizer_name);
  CHECK(refused(folder / "c").has("tokenizer.json is missing"));
  fill(ByteTokenizer(), folder / "e");
  fs::remove(folder / "e" / "tokens_00003.tokens");
  CHECK(refused(folder / "e").has("tokens_00002.tokens, which ends at token 30: the shards after it are missing"));
  fill(ByteTokenizer(), folder / "d");
  CHECK(open_shards(folder / "d" / "tokens_00002.tokens").tokens->count() == 10);  // one alone is fine
}
