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
  refused("\1\2\3", " byte 2: half an id at the end");
  refused(little({1, 2, 256, 3}, 2), ": token 2 is 256; expected 0 to 255");
  std::filesystem::create_directories(folder / "only");
  write_plainly(folder / "only" / "val.bin", little({1, 2, 3}, 2));
  CHECK(says(error_of([&] { load_corpus({folder / "only", "byte", 0, 1}); }, ExitCode::data), "but none to train on"));
}

TEST_CASE("files that are not ids of 2 bytes are refused where this can be known") {
  const TempFolder folder;
  const auto path = folder / "train.bin";
  std::vector<std::uint32_t> ids = {0, 255, 256, 65535}, wide;
  for (std::uint32_t i = 0; i < 100; ++i) ids.push_back(i * 7);
  for (const std::uint32_t id : ids) wide.insert(wide.end(), {id, 0});
  const auto message = [&](const std::string& bytes, ExitCode code = ExitCode::data, const char* tokenizer = "byte") {
    write_plainly(path, bytes);
    return error_of([&] { load_corpus({path, tokenizer, 0, 1}); }, code);
  };
  CHECK(says(message(little(ids, 4)), "train.bin has ids of 4 bytes: as ids of 2 bytes, every second one would be 0"));
  CHECK(says(message(little(wide, 4)), "train.bin has ids of 8 bytes: as ids of 2 bytes, three of four would be 0"));
  CHECK(says(message("A text of printable characters, of any length. \xC3\xBC\n"), "train.bin is a text"));
  CHECK(says(message("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"), "a pointer of Git LFS"));
  for (const std::uint32_t magic : {20240801U, 20240522U, 20240326U, 20240327U, 20240328U})
    CHECK(says(message(little({magic, 7, 500}, 4) + std::string(2012, '\1')), fmt::format("begins with {}: ", magic)));
  CHECK(says(message(std::string("\x01\x34\xD8\x88", 4) + std::string(2044, '\1')), "llm.c with big-endian numbers"));
  std::string big;
  for (const std::uint32_t id : counted(100, 1)) big += {static_cast<char>(id >> 8), static_cast<char>(id)};
  CHECK(says(message(big), "token 0 is 256; expected 0 to 255; the ids are big-endian"));
  // A few ids, or zeros alone, prove nothing.
  for (const std::string& fine : {little({1, 0, 2, 0}, 2), std::string(200, '\0'), little(counted(256), 2)}) {
    write_plainly(path, fine);
    CHECK_NOTHROW(load_corpus({path, "byte", 0, 1}));
  }
  std::filesystem::create_directories(folder / "llama");
  write_plainly(folder / "llama" / "fineweb_train_000001.bin", little({20240801, 7, 100}, 4) + std::string(1412, '\0'));
  CHECK(says(error_of(
                 [&] {
                   load_corpus({folder / "llama", "byte", 0, 1});
                 },
                 ExitCode::data),
             "tokens of llm.c for Llama 3, whose ids have 4 bytes"));
  write_plainly(path, little(counted(256), 2));
  CHECK(says(error_of([&] { open_bins(path, 65537); }, ExitCode::usage), "the tokenizer has 65537 tokens"));
}

TEST_CASE("what stands beside tokens is counted") {
  const TempFolder folder;
  write_plainly(folder / "train.bin", little(counted(256), 2));
  ByteTokenizer().save(folder / shard_tokenizer_name);
  CHECK(load_corpus({folder.path(), std::nullopt, 0, 1}).left_out.all() == 0);
  write_plainly(folder / "input.txt", "a text");
  write_plainly(folder / ".hidden", "");
  CHECK(load_corpus({folder.path(), std::nullopt, 0, 1}).left_out.text() == "1 beside the tokens");
}

}  // namespace bin_tokens_test
