// Untrusted files and values: a program ends with the exit code of the error's kind and one message with the file, the
// place and what was expected, printed once for any number of ranks.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/hash.h"
#include "data/shard_layout.h"
#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;
namespace layout = trireme::shard_layout;

namespace {

void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// Token shards of the text, with its characters as vocabulary.
fs::path make_shards(const Workplace& work) {
  const fs::path folder = work.folder / "tokens";
  const Result made =
      run("prepare_data", fmt::format("--data {} --out {} --tokenizer char", work.path("text.txt"), folder.string()));
  INFO(made.output);
  REQUIRE(made.code == 0);
  return folder;
}

/// Makes both hashes match again, as a bug in a writer or an attacker would.
void rehash(std::string& bytes) {
  const auto put = [&](std::size_t at, std::uint64_t value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(layout::payload_hash_at, trireme::hash_bytes(std::string_view(bytes).substr(layout::header_bytes)));
  put(layout::header_hash_at, trireme::hash_bytes(std::string_view(bytes).substr(0, layout::header_hash_at)));
}

}  // namespace

TEST_CASE("token shards: damage, and a token outside the vocabulary, with file, byte, index and id") {
  const Workplace work;
  const fs::path folder = make_shards(work), file = folder / "tokens_00000.tokens";
  const std::string good = content_of(file), flags = work.small_run() + "--mesh dp=2,tp=2 --data " + folder.string();
  const auto with = [&](const std::string& bytes) {
    write(file, bytes);
    return run("train_gpt", flags);
  };
  check_refused(with(good.substr(0, 50)), 65, {file.string() + " byte 50: the file ends inside the header"});
  check_refused(with(good.substr(0, good.size() - 1)), 65, {file.string() + " byte ", "wrong size"});
  check_refused(with(""), 65, {file.string() + " byte 0"});
  std::string bad = good;
  bad[layout::header_bytes + 1000] ^= 1;
  check_refused(with(bad), 65, {file.string() + " byte 80: the tokens are damaged"});
  bad = good;
  bad[layout::header_bytes + 2 * 17] = 99;
  rehash(bad);
  check_refused(with(bad), 65, {file.string() + " byte 114: token 17 is 99; expected 0 to 39"});
  bad = good;
  std::memset(bad.data() + layout::tokens_at, 0xFF, 8);
  rehash(bad);
  check_refused(with(bad), 65, {file.string() + " byte 16: more tokens than the file holds"});
  bad = good;
  std::memset(bad.data() + layout::tokens_at, 0, 8);
  rehash(bad);
  check_refused(with(bad), 65, {file.string() + " byte 16: the shard is empty; expected at least one token"});
  write(file, good);
  write(folder / "tokenizer.json",
        "{\"format\": \"trireme-tokenizer\", \"version\": 1, \"kind\": \"char\", \"kind\": 1}");
  check_refused(run("train_gpt", flags), 65, {"tokenizer.json byte 62: the key \"kind\" occurs twice"});
}

TEST_CASE("tokenizers and configurations: malformed JSON, with file and byte") {
  const Workplace work;
  const fs::path file = work.folder / "t.json";
  const auto as_tokenizer = [&](const std::string& text) {
    write(file, text);
    return run("train_gpt", work.small_run() + "--tokenizer bpe:" + file.string());
  };
  const std::string head = R"({"format":"trireme-tokenizer","version":1,)";
  check_refused(as_tokenizer(head + R"("kind":"bpe","tokens":["a",7],"merges":[]})"), 65,
                {file.string() + " byte 69: \"tokens\" entry 1: expected a string, got 7"});
  check_refused(as_tokenizer(head + R"("x":)" + std::string(100, '[')), 65,
                {file.string() + " byte 109: nested deeper"});
  check_refused(as_tokenizer(head + "\"x\":\"\xFF\"}"), 65, {file.string() + " byte 47: not valid JSON"});
  check_refused(as_tokenizer(std::string("{}\0", 3)), 65, {file.string() + " byte 2: a byte of value 0"});
  const auto as_config = [&](const std::string& text) {
    write(file, text);
    return run("train_gpt", work.small_run() + "--config " + file.string());
  };
  for (const Result& empty : {as_tokenizer(""), as_config("")}) {
    check_refused(empty, 65, {file.string() + " byte 0: not valid JSON: it is empty (0 bytes); expected a value"});
    CHECK_FALSE(contains(empty.output, "standard JSON"));
  }
  check_refused(as_config("{\"lr\": NaN}"), 65, {file.string() + " byte 7: not valid JSON"});
  check_refused(as_config("{\"lr\": 1e999}"), 65, {file.string() + " byte 11: not valid JSON"});
  check_refused(as_config("{\"lr\": 1, \"lr\": 2}"), 65, {file.string() + " byte 10: the key \"lr\" occurs twice"});
  check_refused(as_config("{\"lr\": -1}"), 64, {"\"lr\" in " + file.string(), "expected a number above 0; got -1"});
}

TEST_CASE("checkpoints: a manifest that leads elsewhere, a shard that is cut") {
  const Workplace work;
  const std::string flags = work.small_run() + "--steps 2 --out " + work.path("run");
  REQUIRE(run("train_gpt", flags).code == 0);
  const fs::path saved = work.folder / "run" / "checkpoints" / "step_00000002", manifest = saved / "manifest.json";
  const std::string text = content_of(manifest);
  const auto with = [&](std::string changed) {
    constexpr std::size_t checksum_at = 13, body_at = 32;  // {"checksum":"0123456789abcdef",\n
    changed.replace(checksum_at, 16,
                    fmt::format("{:016x}", trireme::hash_bytes(std::string_view(changed).substr(body_at))));
    write(manifest, changed);
    return run("checkpoint", "verify " + saved.string());
  };
  CHECK(with(text).code == 0);
  std::string bad = text;
  const std::string name = "rank_00000.safetensors";
  bad.replace(bad.find(name), name.size(), "../../../../etc/passwd");
  check_refused(with(bad), 65, {manifest.string() + " byte ", "\"../../../../etc/passwd\" is not a plain file name"});
  bad = text;
  bad.replace(bad.find("\"offset\":"), 9, "\"offset\":9");
  check_refused(with(bad), 65, {manifest.string() + " byte ", "has a piece outside itself or its file"});
  bad = text;
  bad.replace(bad.find("\"step\":2"), 8, "\"step\":-2");
  check_refused(with(bad), 65, {manifest.string() + " byte ", "step is -2; expected a whole number"});
  write(manifest, text);
  fs::resize_file(saved / name, fs::file_size(saved / name) - 5);
  check_refused(run("checkpoint", "verify " + saved.string()), 65, {(saved / name).string(), "cut short at byte"});
}

TEST_CASE("flags: the nearest name, what a value may be, and the arithmetic of an impossible mesh") {
  const Workplace work;
  const std::string small = work.small_run();
  check_refused(run("train_gpt", small + "--golbal-batch 8"), 64, {"unknown flag --golbal-batch", "--global-batch"});
  check_refused(run("train_gpt", small + "--steps=1e3"), 64, {"--steps: expected an integer", "\"1e3\""});
  check_refused(run("train_gpt", small + "--steps 99999999999999999999"), 64, {"--steps: expected an integer"});
  check_refused(run("train_gpt", small + "--lr nan"), 64, {"--lr: expected a number above 0", "\"nan\""});
  check_refused(run("train_gpt", small + "--lr=-1"), 64, {"--lr: expected a number above 0", "\"-1\""});
  check_refused(run("train_gpt", small + "--sample-length \"$(printf '\\377')\""), 64,
                {"--sample-length", "\"\\xff\""});
  check_refused(run("train_gpt", small + "--out \"$(printf 'a\\254')\""), 64, {"--out: expected text in UTF-8"});
  check_refused(run("train_gpt", small + "--mesh dp=1048576,tp=1048576"), 64,
                {"1048576 x 1048576 x 1 x 1 are more than 1048576 ranks", "--mesh"});
  check_refused(run("train_gpt", small + "--layers 1000 --mesh pp=1000 --pipeline interleaved:65536"), 64,
                {"pp=1000 x 65536 stages a rank = 65536000 stages", "--pipeline"});
  check_refused(run("train_gpt", small + "--mesh dp=2000 --global-batch 4000"), 64,
                {"2000 ranks; expected at most 1024"});
  check_refused(run("train_gpt", small + "--layers 100000000"), 64, {"--layers: expected an integer in [1, 4096]"});
  check_refused(run("train_gpt", small + "--mesh dp=2,ep=4"), 64, {"ep=4 does not divide dp x cp = 2 x 1 = 2"});
}

TEST_CASE("what a launcher says must be numbers") {
  const Workplace work;
  const auto with = [&](const std::string& variables) { return run_with(variables, "train_gpt", work.small_run()); };
  check_refused(with("OMPI_COMM_WORLD_SIZE=two"), 64,
                {"OMPI_COMM_WORLD_SIZE is 'two'; expected a whole number from 1"});
  check_refused(with("OMPI_COMM_WORLD_SIZE=4294967298"), 64, {"OMPI_COMM_WORLD_SIZE is '4294967298'"});
  check_refused(with("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=-3"), 64, {"SLURM_STEP_NUM_TASKS is '-3'"});
}
