// Corpora: files, folders and shards; the split; and what is refused.
#include "data/corpus.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <functional>

#include "core/io.h"
#include "data/bpe_train.h"
#include "data/byte_tokenizer.h"
#include "data/gguf/file.h"
#include "data/safetensors.h"
#include "data/sentencepiece_file.h"
#include "data/text_files.h"
#include "data/tiktoken.h"
#include "data/token_shard.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

namespace fs = std::filesystem;

std::string text_of(const Corpus& corpus, const TokenRange& range) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(range.count()));
  range.read(0, ids);
  return corpus.tokenizer->decode(ids);
}

CorpusOptions options_for(const fs::path& path, std::optional<std::string> tokenizer, double val_fraction = 0.1,
                          std::int64_t context = 4) {
  return {path, std::move(tokenizer), val_fraction, context};
}

/// Writes shards as prepare_data does.
void make_shards(const fs::path& texts, const fs::path& out, const Tokenizer& tokenizer) {
  fs::create_directories(out);
  tokenizer.save(out / shard_tokenizer_name);
  ShardWriter writer(out, tokenizer, 50);
  TextFiles(texts).tokenize(tokenizer, [&](std::span<const std::int32_t> ids, bool begins) {
    if (begins) writer.start_document();
    writer.append(ids);
  });
  writer.finish();
}

/// A folder with texts two levels deep, and everything that must be left out.
void fill_folder(const fs::path& folder) {
  fs::create_directories(folder / "sub" / ".git");
  write_file(folder / "b.txt", "second document");
  write_file(folder / "a.txt", "first document\n");
  write_file(folder / "sub" / "c.md", "third \u00FC");
  write_file(folder / "sub" / ".git" / "config", "hidden folder");
  write_file(folder / ".hidden", "hidden file");
  write_file(folder / "image.png", std::string("\x89PNG\0\0", 6));
  write_file(folder / "empty.txt", "");
}

const std::string kFolderText = "first document\n\nsecond document\nthird \u00FC";

}  // namespace

TEST_CASE("a text file is split on characters at floor(n (1 - f)), the training part first") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 103; ++i) append_utf8(text, static_cast<char32_t>(i % 2 == 0 ? 0x61 + i / 5 : 0xE9 + i / 5));
  write_file(folder / "t.txt", text);
  for (const auto& [fraction, train] :
       {std::pair(0.1, 92), std::pair(0.5, 51), std::pair(0.25, 77), std::pair(0.0, 103)}) {
    const Corpus corpus = load_corpus(options_for(folder / "t.txt", "char", fraction));
    CHECK(corpus.train.count() == train);
    CHECK(corpus.validation.count() == 103 - train);
    CHECK(corpus.tokens() == 103);
    CHECK(text_of(corpus, corpus.train) + text_of(corpus, corpus.validation) == text);
  }
}

TEST_CASE("a folder is read in order, with separators, without hidden, binary and empty files") {
  const TempFolder folder;
  fill_folder(folder.path());
  const TextFiles files(folder.path());
  CHECK(files.count() == 3);
  CHECK(files.left_out().text() == "1 empty, 1 binary");
  const Corpus chars = load_corpus(options_for(folder.path(), "char", 0.0));
  CHECK(text_of(chars, chars.train) == kFolderText);
  const std::string_view view = kFolderText;
  BpeTokenizer(train_bpe({&view, 1}, 262), "test").save(folder / ".bpe.json");
  const Corpus bpe = load_corpus(options_for(folder.path(), "bpe:" + (folder / ".bpe.json").string(), 0.0));
  CHECK(text_of(bpe, bpe.train) == "first document\n<|endoftext|>second document<|endoftext|>third \u00FC");
  // No separator follows the last file: a single file is unchanged.
  CHECK(load_corpus(options_for(folder / "a.txt", "char", 0.0)).tokens() == 15);
}

TEST_CASE("what these programs wrote below a folder is no text, and is counted") {
  const TempFolder folder;
  fs::create_directories(folder / "old" / "run" / "checkpoints" / "step_00000003");
  write_file(folder / "a.txt", "a text");
  const fs::path run = folder / "old" / "run";
  write_file(run / "config.json", "{\n  \"data\": \".\",\n  \"micro-batch\": 4\n}\n");
  write_file(run / "notes of any kind.txt", "all of a run's folder is left out");
  write_file(run / "checkpoints" / "step_00000003" / "manifest.json",
             "{\"checksum\":\"0\",\n\"format\":\"trireme checkpoint 1\"}");
  write_file(folder / "metrics.jsonl", "{\"step\":1,\"loss\":2.5}\n");
  write_file(folder / "said.txt", "device           cpu, 1 thread\nprecision        f32\n");
  write_file(folder / "b.txt", "{\"step\":\"of another kind\"}");
  const TextFiles files(folder.path());
  CHECK(files.count() == 2);
  CHECK(files.left_out().text() == "5 written by Trireme (the first: " + (folder / "metrics.jsonl").string() + ")");
  const Corpus corpus = load_corpus(options_for(folder.path(), "char", 0.0));
  CHECK(corpus.left_out.own == 5);
  REQUIRE(corpus.files.size() == 2);
  CHECK(corpus.files[0].name == "a.txt");
  CHECK(corpus.files[0].bytes == 6);
  fs::remove(run / "notes of any kind.txt");
  const std::string refused = error_of([&] { load_corpus(options_for(run, "char", 0.0)); }, ExitCode::data);
  CHECK(contains(refused, "holds no text file; left out: 2 written by Trireme"));
}

TEST_CASE("links to folders are counted, and a byte-order mark is no text") {
  const TempFolder folder, other;
  write_file(other / "b.txt", "not followed");
  write_file(folder / "a.txt", "\xEF\xBB\xBFtext");
  write_file(folder / "c.txt", "\xEF\xBB\xBFmore");
  fs::create_directory_symlink(other.path(), folder / "linked");
  CHECK(TextFiles(folder.path()).left_out().text() == "1 link to a folder");
  const Corpus corpus = load_corpus(options_for(folder.path(), "char", 0.0));
  CHECK(text_of(corpus, corpus.train) == "text\nmore");
  CHECK(load_corpus(options_for(folder.path(), "byte", 0.0)).tokens() == 9);
  write_file(folder / "a.txt",
             "\xEF\xBB\xBF"
             "ab\xE9");
  CHECK(contains(error_of([&] { load_corpus(options_for(folder / "a.txt", "char", 0.0)); }, ExitCode::data),
                 "a.txt byte 5 of 6 (0xE9)"));
}

TEST_CASE("texts are mapped one at a time, and long ones are passed on in pieces") {
  const TempFolder folder;
  std::string longest;
  while (longest.size() < std::size_t{20} << 20) longest += "line " + std::to_string(longest.size()) + "\n";
  write_file(folder / "a.txt", "first");
  write_file(folder / "b.txt", longest);
  const TextFiles files(folder.path());
  const auto mapped = [&] {
    const std::string maps = read_file("/proc/self/maps");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = maps.find(folder.path().string(), at)) != std::string::npos; ++at) ++count;
    return count;
  };
  CHECK(mapped() == 0);
  std::size_t most = 0;
  std::int64_t tokens = 0, documents = 0;
  std::size_t ever_mapped = 0;
  files.tokenize(ByteTokenizer(), [&](std::span<const std::int32_t> ids, bool begins) {
    most = std::max(most, ids.size());
    tokens += static_cast<std::int64_t>(ids.size());
    documents += begins ? 1 : 0;
    ever_mapped = std::max(ever_mapped, mapped());
  });
  CHECK(documents == 2);
  CHECK(tokens == static_cast<std::int64_t>(5 + 1 + longest.size()));
  CHECK(most <= std::size_t{1} << 20);
  CHECK(ever_mapped == 1);
}

TEST_CASE("a folder with a link that leads nowhere is refused, with the link") {
  const TempFolder folder;
  write_file(folder / "a.txt", "a text");
  fs::create_directory(folder / "b");
  fs::create_symlink("absent.txt", folder / "b" / "c.txt");
  const auto refused = [&] { return error_of([&] { load_corpus({folder.path(), "char", 0, 2}); }, ExitCode::data); };
  CHECK(says(refused(), (folder / "b" / "c.txt").string() + " is a symbolic link to nothing"));
  fs::remove(folder / "b" / "c.txt");
  fs::create_symlink("c.txt", folder / "b" / "c.txt");
  CHECK(says(refused(), (folder / "b" / "c.txt").string() + " is a symbolic link that leads back to itself; expected"));
}

TEST_CASE("shards give the corpus that their text gives") {
  const TempFolder folder;
  fill_folder(folder / "texts");
  for (const char* kind : {"char", "byte"}) {
    const Corpus text = load_corpus(options_for(folder / "texts", kind, 0.25));
    make_shards(folder / "texts", folder / kind, *text.tokenizer);
    const Corpus shards = load_corpus(options_for(folder / kind, std::nullopt, 0.25));
    CHECK(shards.hash == text.hash);
    CHECK(shards.train.count() == text.train.count());
    CHECK(text_of(shards, shards.train) == text_of(text, text.train));
    CHECK(text_of(shards, shards.validation) == text_of(text, text.validation));
    CHECK(load_corpus(options_for(folder / kind, kind, 0.25)).hash == text.hash);
    CHECK(load_corpus(options_for(folder / kind, std::nullopt, 0.25), text.tokenizer).hash == text.hash);
  }
  CHECK(load_corpus(options_for(folder / "texts", "char", 0.0)).hash !=
        load_corpus(options_for(folder / "texts", "byte", 0.0)).hash);
  const Caught other = caught([&] { load_corpus(options_for(folder / "char", "byte")); });
  CHECK(other.code == ExitCode::usage);
  CHECK(other.has("another tokenizer"));
  CHECK(caught([&] { load_corpus(options_for(folder / "byte", "char")); }).code == ExitCode::usage);
  CHECK(caught([&] {
          load_corpus(options_for(folder / "char", std::nullopt), std::make_shared<ByteTokenizer>());
        }).code == ExitCode::data);
}

TEST_CASE("a tokenizer brought from a checkpoint meets a new text") {
  const TempFolder folder;
  write_file(folder / "old.txt", "abcdefgh\nijk");
  write_file(folder / "new.txt", "bad cab");
  const auto tokenizer = load_corpus(options_for(folder / "old.txt", "char", 0.0)).tokenizer;
  const Caught unknown = caught([&] { load_corpus(options_for(folder / "new.txt", std::nullopt, 0.0), tokenizer); });
  CHECK(unknown.code == ExitCode::data);
  CHECK(unknown.has("new.txt: the character ' ' (U+0020) at byte 3"));
}

TEST_CASE("missing, empty, too short, unreadable, not UTF-8: one message each, with the right code") {
  const TempFolder folder;
  write_file(folder / "empty.txt", "");
  write_file(folder / "short.txt", "0123456789");
  write_file(folder / "latin1.txt", "caf\xE9 and more");
  write_file(folder / "a.npy", std::string("\x93NUMPY\1\0", 8));
  write_file(folder / "a.gz", std::string("\x1F\x8B\x08\0\0", 5));
  write_file(folder / "ids.dat", std::string("ab\0c", 4));
  fs::create_directories(folder / "nothing");
  fs::create_directories(folder / "binary");
  write_file(folder / "binary" / "x.bin", std::string("\0\1", 2));
  const auto refused = [&](const CorpusOptions& options) { return caught([&] { load_corpus(options); }); };
  const auto is = [](const Caught& error, ExitCode code, std::string_view part) {
    CAPTURE(error.message);
    CHECK(error.code == code);
    CHECK(error.has(part));
  };
  is(refused(options_for("", "char")), ExitCode::usage, "no text is given");
  is(refused(options_for(folder / "absent", "char")), ExitCode::usage, "absent does not exist");
  is(refused(options_for(folder / "empty.txt", "char")), ExitCode::data, "empty.txt is empty (0 bytes)");
  is(refused(options_for(folder / "nothing", "char")), ExitCode::data, "nothing holds no text file; expected");
  is(refused(options_for(folder / "binary", "char")), ExitCode::data,
     "binary holds no text file; left out: 1 binary; expected");
  is(refused(options_for(folder / "latin1.txt", "char")), ExitCode::data,
     "latin1.txt byte 3 of 13 (0xE9) is not UTF-8");
  CHECK(load_corpus(options_for(folder / "latin1.txt", "byte", 0.0)).tokens() == 13);
  is(refused(options_for(folder / "short.txt", "char", 0.0, 10)), ExitCode::data,
     "10 tokens, of which the training part gets 10");
  CHECK(load_corpus(options_for(folder / "short.txt", "char", 0.0, 9)).train.count() == 10);
  is(refused(options_for(folder / "short.txt", "char", 0.1, 4)), ExitCode::data,
     "validation part gets 1 (--val-fraction 0.1); expected at least 5");
  is(refused(options_for(folder / "short.txt", "char", 1.0)), ExitCode::usage, "--val-fraction is 1");
  is(refused(options_for(folder / "short.txt", "char", -0.1)), ExitCode::usage, "--val-fraction");
  is(refused(options_for(folder / "short.txt", "word")), ExitCode::usage, "unknown tokenizer \"word\"");
  for (const char* tokenizer : {"char", "byte"}) {
    is(refused(options_for(folder / "a.npy", tokenizer)), ExitCode::data, "a.npy is no text, but an array of NumPy");
    is(refused(options_for(folder / "a.gz", tokenizer)), ExitCode::data,
       "compressed by gzip; decompress it (zcat), or give prepare_data");
    is(refused(options_for(folder / "ids.dat", tokenizer)), ExitCode::data, "byte 2 is zero; give a text");
  }
  is(refused(options_for("/dev/null", "char")), ExitCode::data, "not a regular file but a device");
  write_file(folder / "fake.tokens", "not a shard");
  is(refused(options_for(folder / "fake.tokens", std::nullopt)), ExitCode::data, "fake.tokens byte 11");
}

TEST_CASE("a folder with the tokenizer of token shards, but without the shards, is not a text") {
  const TempFolder folder;
  const ByteTokenizer tokenizer;
  write_file(folder / "text.txt", "a text to learn from, of some length; more than fifty characters long");
  make_shards(folder / "text.txt", folder / "shards", tokenizer);
  CHECK(load_corpus(options_for(folder / "shards", std::nullopt)).tokenizer->name() == "byte");
  for (const char* name : {"tokens_00000.tokens", "tokens_00001.tokens"}) fs::remove(folder / "shards" / name);
  const auto refused = [&](const fs::path& path) {
    const Caught error = caught([&] { load_corpus(options_for(path, std::nullopt)); });
    CAPTURE(error.message);
    CHECK(error.code == ExitCode::data);
    CHECK(error.has((folder / "shards" / "tokenizer.json").string() + " belongs to token shards"));
  };
  refused(folder / "shards");
  refused(folder / "shards" / "");
  write_file(folder / "shards" / "notes.txt", "what these shards were made of");
  refused(folder / "shards");
  fs::remove(folder / "shards" / "notes.txt");
  // In a folder below, it is no text; beside texts, it is left out.
  CHECK(load_corpus(options_for(folder.path(), "char", 0.0)).tokens() == 69);
  fs::remove(folder / "text.txt");
  refused(folder.path());
}

TEST_CASE("pointers, encodings, packed files and pipes are told apart") {
  const TempFolder folder;
  const auto refused = [&](std::string_view bytes, std::string_view what) {
    write_plainly(folder / "x.txt", bytes);
    for (const char* tokenizer : {"char", "byte"})
      CHECK(says(error_of([&] { load_corpus(options_for(folder / "x.txt", tokenizer)); }, ExitCode::data), what));
  };
  refused("\xFF\xFE\x42\x30\x44\x30", "x.txt is no text, but UTF-16; convert it: iconv -f UTF-16");
  refused("\xFE\xFF\x30\x42\x30\x44", "x.txt is no text, but UTF-16");
  refused(std::string_view("\xFF\xFE\0\0a\0\0\0", 8), "x.txt is no text, but UTF-32; convert it: iconv -f UTF-32");
  refused(std::string_view("\0\0\xFE\xFF\0\0\0a", 8), "x.txt is no text, but UTF-32");
  refused(std::string_view("\xFD"
                           "7zXZ\0",
                           6),
          "x.txt is no text, but compressed by xz; decompress it: xzcat");
  refused("BZh91AY&SY", "x.txt is no text, but compressed by bzip2; decompress it: bzcat");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n";
  refused(pointer, "x.txt is a pointer of Git LFS, which stands for the file");
  write_plainly(folder / "a.txt", "a text about\nversion https://git-lfs.github.com/spec/v1\noid sha256:1\n");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(TextFiles(folder.path()).left_out().text() == "1 pointer of Git LFS, 1 pipe, socket or device");
  CHECK(says(error_of([&] { load_corpus(options_for(folder / "pipe", "char")); }, ExitCode::data),
             "pipe is not a regular file but a pipe; expected a file or a folder; give the text to prepare_data on its "
             "standard input"));
}

TEST_CASE("a pointer of Git LFS or a web page in the place of a file is named") {
  const TempFolder folder;
  for (const auto& [text, what] :
       {std::pair("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "x is a pointer of Git LFS"),
        std::pair(" \n<!DOCTYPE HTML><html>", "x is a web page (HTML)"),
        std::pair("<html lang=en>", "x is a web page")})
    for (const auto& read :
         {std::function<void()>([&] { parse_token_shard(std::as_bytes(std::span(std::string_view(text))), "x"); }),
          std::function<void()>([&] { parse_tiktoken(text, "r50k_base", "x"); }),
          std::function<void()>([&] { parse_sentence_piece_model(text, "x"); }),
          std::function<void()>([&] { parse_gguf(text, "x"); }),
          std::function<void()>([&] { parse_tokenizer(text, "x"); }),
          std::function<void()>([&] { parse_safetensors(text, "x"); })})
      CHECK(says(error_of(read, ExitCode::data), what));
}
