// Files of tokens of nanoGPT and llm.c, made here byte for byte, and ours for them.
#include "data/bin_tokens.h"

#include <doctest/doctest.h>

#include "core/io.h"
#include "data/byte_tokenizer.h"
#include "data/corpus.h"
#include "data/token_shard.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace bin_tokens_test {

/// Little-endian numbers of `width` bytes.
std::string little(const std::vector<std::uint32_t>& numbers, int width) {
  std::string bytes;
  for (const std::uint32_t number : numbers)
    for (int i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

std::vector<std::uint32_t> counted(std::uint32_t count, std::uint32_t first = 0) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t i = 0; i < count; ++i) ids.push_back((first + i) % 256);
  return ids;
}

std::string llmc_file(const std::vector<std::uint32_t>& ids) {
  std::vector<std::uint32_t> header = {20240520, 1, static_cast<std::uint32_t>(ids.size())};
  header.resize(256);
  return little(header, 4) + little(ids, 2);
}

std::vector<std::uint32_t> ids_of(const TokenRange& range) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(range.count()));
  range.read(0, ids);
  return {ids.begin(), ids.end()};
}

TEST_CASE("files of nanoGPT and llm.c, alone and in folders, are recognised and read") {
  const TempFolder folder;
  namespace fs = std::filesystem;
  for (const char* name : {"nano", "llmc", "text"}) fs::create_directories(folder / name);
  write_plainly(folder / "nano" / "train.bin", little(counted(100), 2));
  write_plainly(folder / "nano" / "val.bin", little(counted(30, 7), 2));
  write_plainly(folder / "nano" / "input.txt", "the text");
  write_plainly(folder / "llmc" / "fineweb_val_000000.bin", llmc_file(counted(40, 9)));
  write_plainly(folder / "llmc" / "fineweb_train_000001.bin", llmc_file(counted(60)));
  write_plainly(folder / "llmc" / "fineweb_train_000002.bin", llmc_file(counted(50, 60)));
  write_plainly(folder / "text" / "a.txt", "a text");
  write_plainly(folder / "text" / "weights.bin", std::string(10, '\0'));
  CHECK(token_format(folder / "nano") == TokenFormat::nanogpt);
  CHECK(token_format(folder / "nano" / "val.bin") == TokenFormat::nanogpt);
  CHECK(token_format(folder / "nano" / "input.txt") == TokenFormat::none);
  CHECK(token_format(folder / "llmc") == TokenFormat::llmc);
  CHECK(token_format(folder / "llmc" / "fineweb_train_000001.bin") == TokenFormat::llmc);
  CHECK(token_format(folder / "text") == TokenFormat::none);
  CHECK(token_format(folder / "absent.bin") == TokenFormat::none);

  const Corpus nano = load_corpus({folder / "nano", "byte", 0.1, 8});
  CHECK(ids_of(nano.train) == counted(100));
  CHECK(ids_of(nano.validation) == counted(30, 7));
  CHECK(load_corpus({folder / "nano", "byte", 0, 8}).validation.count() == 0);
  const Corpus llmc = load_corpus({folder / "llmc", "byte", 0.1, 8});
  CHECK(ids_of(llmc.train) == counted(110));
  CHECK(ids_of(llmc.validation) == counted(40, 9));
  const Corpus one = load_corpus({folder / "nano" / "train.bin", "byte", 0.25, 8});
  CHECK(one.train.count() == 75);
  CHECK(one.validation.count() == 25);
  CHECK(says(error_of(
                 [&] {
                   load_corpus({folder / "nano", std::nullopt, 0.1, 8});
                 },
                 ExitCode::usage),
             "there is no tokenizer.json beside it"));
  ByteTokenizer().save(folder / "nano" / shard_tokenizer_name);
  CHECK(load_corpus({folder / "nano", std::nullopt, 0.1, 8}).hash == nano.hash);
}

TEST_CASE("what we write for nanoGPT and llm.c has their bytes") {
  const TempFolder folder;
  TokenBuffer buffer(256);
  std::vector<std::int32_t> ids;
  for (const std::uint32_t id : counted(250)) ids.push_back(static_cast<std::int32_t>(id));
  buffer.append(ids);
  const TokenRange tokens(in_memory(std::move(buffer)));
  CHECK(write_bins(tokens, TokenFormat::nanogpt, folder.path(), "train", 256, 100) == 1);
  CHECK(content_of(folder / "train.bin") == little(counted(250), 2));
  CHECK(write_bins(tokens, TokenFormat::llmc, folder.path(), "val", 65536, 100) == 3);
  CHECK(content_of(folder / "val_000000.bin") == llmc_file(counted(100)));
  CHECK(content_of(folder / "val_000002.bin") == llmc_file(counted(50, 200)));
  CHECK(says(error_of([&] { write_bins(tokens, TokenFormat::llmc, folder.path(), "x", 65537, 100); }, ExitCode::usage),
             "the tokenizer has 65537 tokens"));
}

TEST_CASE("malformed files of nanoGPT and llm.c are refused with file and byte") {
  const TempFolder folder;
  const auto path = folder / "bad.bin";
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    write_plainly(path, bytes);
    CHECK(says(error_of([&] { load_corpus({path, "byte", 0, 1}); }, ExitCode::data), path.string() + part));
  };
  const std::string good = llmc_file(counted(10));
  for (std::size_t size = 4; size < 1024; size += 101)
    refused(good.substr(0, size), fmt::format(" byte {}: the file ends inside", size));
  refused(good.substr(0, 1024),
          " byte 1024: the file has the wrong size; expected 1044 bytes for 10 tokens, found 1024");
  refused(good + "xx", " byte 1044: the file has the wrong size");
  refused(good.substr(0, 1043), " byte 1043: the file has the wrong size");
  refused(little({20240520, 7, 10}, 4) + good.substr(12), " byte 4: unknown version; expected 1, found 7");
  for (const std::uint32_t count : {0U, 0x80000000U, 0xFFFFFFFFU})
    refused(little({20240520, 1, count}, 4) + good.substr(12), " byte 8: no tokens");
  refused(little({20240520, 1, 0x7FFFFFFF}, 4) + good.substr(12), " byte 1044: the file has the wrong size");
  refused("", " byte 0: the file is empty");
  refused("abc", " byte 2: half an id at the end");
  refused(little({1, 2, 256, 3}, 2), ": token 2 is 256; expected 0 to 255");
  std::filesystem::create_directories(folder / "only");
  write_plainly(folder / "only" / "val.bin", little({1, 2, 3}, 2));
  CHECK(says(error_of([&] { load_corpus({folder / "only", "byte", 0, 1}); }, ExitCode::data), "but none to train on"));
}

}  // namespace bin_tokens_test
