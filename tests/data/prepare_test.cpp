// Texts to shards: formats, compression, workers, filters, duplicates, and starts that were killed.
#include "data/prepare/prepare.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef TRIREME_ZLIB
#include <zlib.h>
#endif
#ifdef TRIREME_ZSTD
#include <zstd.h>
#endif

#include "core/io.h"
#include "core/io_faults.h"
#include "data/byte_tokenizer.h"
#include "data/prepare/csv.h"
#include "helpers.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;

namespace prepare_test {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

/// Documents with everything that JSON and CSV have to quote, of very different lengths.
Texts make_documents(std::size_t count) {
  std::mt19937_64 random(11);
  const Texts words = {"a",         "word",        "\"quoted\"", "comma,", "tab\t",
                       "line\nend", "crlf\r\nend", "\xC3\xBC",   "\\",     "1 2 3"};
  Texts documents;
  for (std::size_t i = 0; i < count; ++i) {
    std::string text = fmt::format("document {}", i);
    for (std::size_t n = random() % (i % 10 == 0 ? 300 : 10); n > 0; --n) text += " " + words[random() % words.size()];
    documents.push_back(text);
  }
  return documents;
}

std::string as_jsonl(const Texts& documents) {
  std::string text;
  for (const std::string& document : documents) {
    std::string quoted;
    for (const char c : document) {
      if (c == '\n')
        quoted += "\\n";
      else if (c == '\r')
        quoted += "\\r";
      else if (c == '\t')
        quoted += "\\t";
      else if (c == '"' || c == '\\')
        quoted += std::string("\\") + c;
      else
        quoted += c;
    }
    text += fmt::format("{{\"id\": {}, \"text\": \"{}\", \"tags\": [1, {{}}]}}\n", text.size(), quoted);
  }
  return text;
}

std::string as_csv(const Texts& documents, char separator) {
  std::string text = fmt::format("id{0}\"text\"{0}rest\r\n", separator);
  for (const std::string& document : documents) {
    std::string quoted;
    for (const char c : document) quoted += c == '"' ? "\"\"" : std::string(1, c);
    text += fmt::format("{0}{1}\"{2}\"{1}\r\n", text.size(), separator, quoted);
  }
  return text;
}

/// The ids that the shards of these documents hold.
std::vector<std::int32_t> expected_ids(const Texts& documents) {
  std::string text;
  for (std::size_t i = 0; i < documents.size(); ++i) text += (i == 0 ? "" : "\n") + documents[i];
  return ByteTokenizer().encode(text);
}

struct Result {
  PrepareState state;
  std::vector<std::int32_t> ids;
};

Result prepare(const fs::path& data, const fs::path& folder, const PrepareOptions& options = {},
               std::optional<TextFormat> format = std::nullopt) {
  fs::create_directories(folder);
  ByteTokenizer().save(folder / shard_tokenizer_name);
  Result result;
  write_shards(find_text_inputs(data, format), ByteTokenizer(), options, folder, result.state);
  const ShardSet set = open_shards(folder);
  result.ids.resize(static_cast<std::size_t>(set.tokens->count()));
  set.tokens->read(0, result.ids);
  return result;
}

/// All shards, as bytes.
std::string shards_of(const fs::path& folder) {
  std::string all;
  for (const std::string& name : list_folder(folder))
    if (fs::path(name).extension() == shard_extension) all += name + content_of(folder / name);
  return all;
}

#ifdef TRIREME_ZLIB
std::string gzipped(std::string_view text) {
  z_stream state{};
  REQUIRE(::deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(::deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  REQUIRE(::deflate(&state, Z_FINISH) == Z_STREAM_END);
  out.resize(state.total_out);
  ::deflateEnd(&state);
  return out;
}
#endif
#ifdef TRIREME_ZSTD
std::string zstd_of(std::string_view text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}
#endif

std::string read_all_of(const std::string& stored, Compression compression) {
  const auto bytes = decompressed(std::make_shared<MemoryBytes>(stored), compression, "some/file");
  std::string text, piece(1000, '\0');
  while (const std::size_t count = bytes->read(piece)) text += piece.substr(0, count);
  return text;
}

TEST_CASE("a byte-order mark at the beginning of a file is no text, whatever its format") {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "\xEF\xBB\xBF{\"text\": \"one\"}\n");
  write_file(folder / "b.txt", "\xEF\xBB\xBFtwo");
  write_file(folder / "c.txt", "\xEF\xBB\xBF");
  std::string all;
  for_each_text(find_text_inputs(folder.path(), std::nullopt), "text",
                [&](const TextBlock&, std::string_view text, std::int64_t) { all += text; });
  CHECK(all == "onetwo");
}

TEST_CASE("the same documents give the same tokens in every format, with any number of workers and any blocks") {
  const TempFolder folder;
  const Texts documents = make_documents(200);
  const auto expected = expected_ids(documents);
  write_plainly(folder / "a.jsonl", as_jsonl(documents));
  write_plainly(folder / "a.csv", as_csv(documents, ','));
  write_plainly(folder / "a.tsv", "\xEF\xBB\xBF" + as_csv(documents, '\t'));
  write_plainly(folder / "b.json", "\n" + as_jsonl(documents));
  write_plainly(folder / "A.JSONL", as_jsonl(documents));
  write_plainly(folder / "A.Csv", as_csv(documents, ','));
  Texts names = {"a.jsonl", "a.csv", "a.tsv", "b.json", "A.JSONL", "A.Csv"};
#ifdef TRIREME_ZLIB
  write_plainly(folder / "a.ndjson.gz", gzipped(as_jsonl(documents)));
  names.emplace_back("a.ndjson.gz");
#endif
#ifdef TRIREME_ZSTD
  write_plainly(folder / "a.csv.zst", zstd_of(as_csv(documents, ',')));
  names.emplace_back("a.csv.zst");
#endif
  std::string first;
  int run = 0;
  for (const std::string& name : names) {
    for (const auto& [workers, block] : {std::pair(1, 1 << 20), std::pair(3, 100), std::pair(2, 5000)}) {
      CAPTURE(name);
      CAPTURE(workers);
      PrepareOptions options;
      options.pipeline.workers = workers;
      options.block_bytes = static_cast<std::size_t>(block);
      options.shard_tokens = 3000;
      const fs::path out = folder / fmt::format("out{}", run++);
      const Result result = prepare(folder / name, out, options);
      CHECK(result.ids == expected);
      CHECK(result.state.counts.documents == 200);
      if (first.empty()) first = shards_of(out);
      CHECK(shards_of(out) == first);
    }
  }
}

TEST_CASE("records are not learned as text: they are read as records, or refused") {
  const TempFolder folder;
  const std::string line = "{\"text\": \"a\"}\n";
  write_plainly(folder / "array.json", "\n[\n  {\"text\": \"a\"}]");
  CHECK(caught([&] { find_text_inputs(folder / "array.json", std::nullopt); }).has("is one JSON array"));
  CHECK(find_text_inputs(folder / "array.json", TextFormat::text).files.size() == 1);
  for (const char* text : {"{\n  \"name\": \"a\"\n}\n", "{\"text\": \"a\"}\n", "[1, 2]\n", "{}x\n{}\n"}) {
    write_plainly(folder / "one.json", text);
    CHECK(find_text_inputs(folder / "one.json", std::nullopt).files[0].format == TextFormat::text);
    CHECK_NOTHROW(TextFiles(folder / "one.json"));
  }
  for (const char* name : {"b/a.jsonl", "b/a.NDJSON", "b/a.csv", "b/a.Tsv", "lines.json"}) {
    CAPTURE(name);
    const fs::path path = folder / name;
    fs::create_directories(path.parent_path());
    write_plainly(path, line + line);
    const Caught error = caught([&] { TextFiles files(path.parent_path() == folder.path() ? path : folder / "b"); });
    CHECK(error.code == ExitCode::usage);
    CHECK(error.has(path.string() + " holds "));
    fs::remove(path);
  }
}

TEST_CASE("a text is cut into blocks without a trace, and a folder is read in order") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("line {} \xC3\xBC of a text that goes on\n", i * i);
  fs::create_directories(folder / "texts");
  write_plainly(folder / "texts" / "a.txt", text);
  write_plainly(folder / "texts" / "b.txt", "short");
  write_plainly(folder / "texts" / "c.jsonl", "{\"text\":\"of JSON\"}\n\n{\"text\":\"\"}\n{\"text\":\"last\"}");
  write_plainly(folder / "texts" / "empty", "");
  write_plainly(folder / "texts" / "binary", std::string("a\0b", 3));
  PrepareOptions options;
  options.block_bytes = 777;
  options.pipeline.workers = 2;
  const Result result = prepare(folder / "texts", folder / "out", options);
  CHECK(result.ids == expected_ids({text, "short", "of JSON", "last"}));
  CHECK(result.state.counts.documents == 4);
  CHECK(result.state.counts.left_out.too_short == 1);
  CHECK(find_text_inputs(folder / "texts", std::nullopt).left_out.all() == 2);
}

TEST_CASE("filters and duplicates: what is left out is counted, and independent of workers") {
  const TempFolder folder;
  const Texts documents = {"abc def",   "abc", "abc def", "1234 5678 a", "\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC",
                           "abc def g", "abc", "x",       "abc def",     std::string(50, 'y')};
  write_plainly(folder / "a.jsonl", as_jsonl(documents));
  PrepareOptions options;
  options.pipeline.filter = {.min_chars = 3, .max_chars = 20, .max_non_letters = 0.5};
  options.deduplicate = true;
  options.block_bytes = 30;
  for (const int workers : {1, 2, 4}) {
    options.pipeline.workers = workers;
    const Result result = prepare(folder / "a.jsonl", folder / fmt::format("out{}", workers), options);
    CHECK(result.ids == expected_ids({"abc def", "abc", "\xC3\xBC\xC3\xBC\xC3\xBC\xC3\xBC", "abc def g"}));
    CHECK(result.state.counts.documents == 4);
    CHECK(result.state.counts.duplicates == 3);
    CHECK(result.state.counts.left_out.too_short == 1);
    CHECK(result.state.counts.left_out.too_long == 1);
    CHECK(result.state.counts.left_out.non_letters == 1);
  }
  options.pipeline.filter.min_chars = 100;
  options.pipeline.filter.max_chars.reset();
  CHECK(contains(error_of([&] { prepare(folder / "a.jsonl", folder / "none", options); }, ExitCode::data),
                 "no document is left"));
  CHECK(filter_outcome("a1", {.max_non_letters = 0.5}) == FilterOutcome::kept);
  CHECK(filter_outcome("a12", {.max_non_letters = 0.5}) == FilterOutcome::non_letters);
  CHECK(filter_outcome("\xFF\xFFz", {.max_non_letters = 0.5}) == FilterOutcome::non_letters);
}

TEST_CASE("the set of documents: hashes of every kind, while it grows, and after another start") {
  const TempFolder folder;
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> hashes = {0, 1, 1024, ~std::uint64_t{0}};
  for (int i = 0; i < 5000; ++i) hashes.push_back(random());
  {
    DocumentSet set(folder / "seen", 0);
    for (const std::uint64_t hash : hashes) CHECK(set.insert(hash));
    for (const std::uint64_t hash : hashes) CHECK_FALSE(set.insert(hash));
    CHECK(set.count() == 5004);
    set.sync();
  }
  const DocumentSet again(folder / "seen", 5000);
  CHECK(again.count() == 5000);
  CHECK(again.contains(hashes[4999]));
  CHECK_FALSE(again.contains(hashes[5000]));
  CHECK(contains(error_of([&] { DocumentSet(folder / "seen", 5001); }, ExitCode::data), "expected at least the 40008"));
}

TEST_CASE("a job that is killed at any file operation, twice, goes on to the bytes of an undisturbed one") {
  const TempFolder folder;
  Texts documents = make_documents(60);
  documents.insert(documents.end(), documents.begin(), documents.begin() + 20);
  write_plainly(folder / "a.jsonl", as_jsonl(documents));
  write_plainly(folder / "a.csv", as_csv(documents, ','));
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("line {}\n", i);
  write_plainly(folder / "a.txt", text);
#ifdef TRIREME_ZLIB
  write_plainly(folder / "b.jsonl.gz", gzipped(as_jsonl(documents)));
  const std::string compressed = "b.jsonl.gz";
#else
  const std::string compressed = "a.jsonl";
#endif
  for (const std::string& name : {std::string("a.csv"), std::string("a.txt"), compressed}) {
    PrepareOptions options;
    options.deduplicate = name != "a.txt";
    options.block_bytes = 1500;
    options.shard_tokens = 1200;
    options.sync_seconds = 0;  // after each block
    options.pipeline.workers = 2;
    prepare(folder / name, folder / (name + ".whole"), options);
    const std::string expected = shards_of(folder / (name + ".whole"));
    const auto work = [&](const fs::path& out) {
      PrepareState state;
      const fs::path noted = out / prepare_state_name;
      if (fs::exists(noted)) state = parse_prepare_state(read_file(noted), noted);
      write_shards(find_text_inputs(folder / name, std::nullopt), ByteTokenizer(), options, out, state);
    };
    /// Whether a start that is killed at operation `at` comes to its end before.
    const auto ends_before = [&](const fs::path& out, std::int64_t at) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        IoFault fault;
        fault.kind = IoFault::Kind::kill;
        fault.first = fault.last = at;
        fault.path = out.string();
        arm_io_faults(fault);
        try {
          work(out);
        } catch (...) { ::_exit(9); }
        ::_exit(0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      REQUIRE((WIFSIGNALED(status) || WEXITSTATUS(status) == 0));
      return WIFEXITED(status);
    };
    std::int64_t at = 1, starts = 0;
    for (bool ended = false; !ended; at += 1 + at / 25, ++starts) {
      CAPTURE(name);
      CAPTURE(at);
      const fs::path out = folder / fmt::format("{}.{}", name, at);
      fs::create_directories(out);
      ended = ends_before(out, at);
      if (!ended && at > 3) ends_before(out, at / 2);
      work(out);
      REQUIRE(shards_of(out) == expected);
      fs::remove_all(out);
    }
    CHECK(starts > 30);
  }
}

TEST_CASE("bad lines are named by file and line") {
  const TempFolder folder;
  const auto refused = [&](const std::string& name, std::string_view content, const std::string& part) {
    write_plainly(folder / name, content);
    PrepareOptions options;
    options.block_bytes = 40;
    options.pipeline.workers = 2;
    const std::string message = error_of([&] { prepare(folder / name, folder / "out", options); }, ExitCode::data);
    CHECK(says(message, (folder / name).string() + " line " + part));
    fs::remove_all(folder / "out");
  };
  const std::string good = "{\"text\":\"good\"}\n";
  refused("a.jsonl", good + good + "\n" + "{\"text\": nonsense}\n" + good, "4 byte 10: not valid JSON");
  refused("a.jsonl", good + "{\"text\":\"cut", "2 byte 8: a string begins here and does not end");
  refused("a.jsonl", good + "[1]\n", "2: [1] is not an object");
  refused("a.jsonl", good + "{\"body\":\"x\",\"url\":1}\n", "2: there is no key \"text\"; found \"body\", \"url\"");
  refused("a.jsonl", "{\"text\":null}", "1 byte 1: \"text\" is null; expected a text");
  refused("a.jsonl", "{\"text\":\"a\",\"text\":\"b\"}", "1 byte 12: the key \"text\" occurs twice");
  refused("a.jsonl", good + "{\"text\":\"\\ud800\"}", "2 byte");
  refused("a.csv", "id,text\n1,a\n2\n", "3: 1 fields; expected 2");
  refused("a.csv", "id,body\n1,a\n", "1: there is no column \"text\"; found \"id\", \"body\"");
  refused("a.csv", "text,text\n1,a\n", "1: the column \"text\" occurs twice");
  refused("a.csv", "id,text\n1,\"a\nb\"\n2,\"open\n", "4: a field begins with a quote here and does not end");
  refused("a.csv", "id,text\n1,\"a\"b\n", "2: text behind a closing quote");
  refused("a.csv", "id,text\n1,a\"b\n", "2: a quote inside of a field");
  refused("a.csv", "id,text\n1,a\rb\n", "2: a carriage return");
  refused("a.csv", "id,text\n" + std::string(20'000, ',') + "\n", "2: more than 10000 fields");
}

TEST_CASE("blank lines of a table with several columns are no records") {
  const TempFolder folder;
  write_plainly(folder / "a.csv", "id,text\n1,a\n\n2,b\r\n\r\n");
  CHECK(prepare(folder / "a.csv", folder / "two").ids == expected_ids({"a", "b"}));
  write_plainly(folder / "a.csv", "text\na\n\nb\n");
  const Result one = prepare(folder / "a.csv", folder / "one");
  CHECK(one.ids == expected_ids({"a", "b"}));
  CHECK(one.state.counts.left_out.too_short == 1);
}

TEST_CASE("records of a table: fields, line ends, and blocks that end where records end") {
  const auto records = [](std::string_view text) {
    CsvReader reader(text, ',', "some/file");
    std::vector<Texts> all;
    for (Texts fields; reader.next(fields);) all.push_back(fields);
    return all;
  };
  using Records = std::vector<Texts>;
  CHECK(records("") == Records{});
  CHECK(records("a") == Records{{"a"}});
  CHECK(records("a,\r\n,b\n") == Records{{"a", ""}, {"", "b"}});
  CHECK(records("\"a\nb\",\"\"\"\"\n\n\"\"") == Records{{"a\nb", "\""}, {""}, {""}});
  CsvCutter cutter;
  const std::string text = "1,\"a\nb\"\n2,c\n";
  CHECK(cutter.cut(text.substr(0, 6), 1) == 0);
  CHECK(cutter.cut(text, 1) == 8);
  cutter.restart();
  CHECK(cutter.cut(text, 12) == 12);
  cutter.restart();
  CHECK(cutter.cut(text, 11) == 8);
}

TEST_CASE("compressed bytes: several pieces, damage at every place, cut at every place, something behind them") {
  std::string text;
  for (int i = 0; i < 500; ++i) text += fmt::format("{} ", i * 7919 % 1000);
  std::vector<std::pair<Compression, std::string>> kinds;
#ifdef TRIREME_ZLIB
  kinds.emplace_back(Compression::gzip, gzipped(text));
  const std::string zeros(700, '\0');  // as tar pads a file
  CHECK(read_all_of(gzipped(text) + zeros + gzipped(text) + zeros, Compression::gzip) == text + text);
#endif
#ifdef TRIREME_ZSTD
  kinds.emplace_back(Compression::zstd, zstd_of(text));
#endif
  for (const auto& [compression, stored] : kinds) {
    const auto refused = [&, compression = compression](const std::string& bytes, const std::string& part) {
      const std::string message = error_of([&] { read_all_of(bytes, compression); }, ExitCode::data);
      CHECK(says(message, "some/file byte "));
      CHECK(says(message, part));
    };
    CHECK(read_all_of(stored, compression) == text);
    CHECK(read_all_of(stored + stored, compression) == text + text);
    for (std::size_t size = 0; size < stored.size(); size += 13) refused(stored.substr(0, size), "ends inside");
    refused(stored.substr(0, stored.size() - 1), "ends inside");
    refused(stored + "x", "");
    refused("plain text, and not compressed", "");
    std::string damaged = stored;
    damaged[stored.size() / 2] = static_cast<char>(damaged[stored.size() / 2] ^ 0x10);
    if (compression == Compression::gzip) refused(damaged, "");  // zstd needs a checksum, which is an option there
  }
}

TEST_CASE("the state of a job is read back; anything else is refused") {
  PrepareState state;
  state.job = {{"--data", "a \"b\""}};
  state.input = {.file = 2, .offset = 77, .line = 5, .inside = true, .hash = ~std::uint64_t{0} - 5};
  state.shards = {.shards = 1, .first_token = 10, .tokens = 3, .documents = 2, .pending = true};
  state.counts = {
      .documents = 9, .bytes = 8, .duplicates = 7, .left_out = {.too_short = 1, .too_long = 2, .non_letters = 3}};
  state.seen = 4;
  state.complete = true;
  const std::string text = to_text(state);
  const PrepareState back = parse_prepare_state(text, "some/file");
  CHECK(to_text(back) == text);
  CHECK(back.job == state.job);
  CHECK(back.input.hash == state.input.hash);
  CHECK(back.counts.left_out.non_letters == 3);
  for (const char* bad : {"", "[]", "{}", "{\"format\":\"x\"}"})
    CHECK(caught([&] { parse_prepare_state(bad, "some/file"); }).code == ExitCode::data);
  for (std::size_t size = 0; size + 2 < text.size(); size += 7)
    CHECK(caught([&] { parse_prepare_state(text.substr(0, size), "some/file"); }).code == ExitCode::data);
}

#ifdef TRIREME_ZLIB
TEST_CASE("what is in a compressed file is looked at as if it were not compressed") {
  const TempFolder folder;
  const std::string lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
  const auto refused = [&](const char* name, const std::string& text, std::string_view what) {
    write_plainly(folder / name, gzipped(text));
    const std::string message = error_of([&] { find_text_inputs(folder / name, std::nullopt); }, ExitCode::data);
    CHECK(says(message, (folder / name).string()));
    CHECK(says(message, what));
  };
  refused("program.txt.gz",
          std::string("\x7F"
                      "ELF\0\0",
                      6),
          "program.txt.gz, decompressed, is no text, but byte 4 is zero");
  refused("twice.txt.gz", gzipped("a text"), "twice.txt.gz, decompressed, is no text, but compressed by gzip");
  refused("utf16.txt.gz", "\xFE\xFF\x30\x42\x30\x44", "is no text, but UTF-16");
  refused("files.tar.gz", std::string(257, 'a') + "ustar", "is no text, but a tar archive");
  refused("pointer.txt.gz", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "pointer of Git LFS");
  refused("array.json.gz", "[" + lines + "]", "is one JSON array");
  CHECK(find_text_inputs(folder / "array.json.gz", TextFormat::text).files.size() == 1);
  fs::remove(folder / "array.json.gz");
  write_plainly(folder / "lines.json.gz", gzipped(lines));
  write_plainly(folder / "nothing.txt.gz", gzipped(""));
  write_plainly(folder / "empty.txt.gz", "");
  const TextInputs found = find_text_inputs(folder.path(), std::nullopt);
  REQUIRE(found.files.size() == 1);
  CHECK(found.files[0].format == TextFormat::jsonl);
  CHECK(found.left_out.text() == "2 empty, 4 binary, 1 pointer of Git LFS");
}
#endif

}  // namespace prepare_test
