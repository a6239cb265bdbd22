// Checkpoints with correct checksums and wrong content, and pipes or folders in the place of their files. Every program
// that reads them refuses them, naming the file and what is wrong, before it uses any of the content.
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/hash.h"
#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// A run of six steps, and its manifest, which can be changed.
struct SavedRun {
  SavedRun() : out(work.path("run")), folder(work.folder / "run/checkpoints/step_00000006"), manifest(folder / name) {
    const Result result = run("train_gpt", work.small_run() + "--out " + out);
    INFO(result.output);
    REQUIRE(result.code == 0);
    whole = content_of(manifest);
  }

  /// Replaces the first `from` after `behind` and corrects the checksum.
  void change(const std::string& from, const std::string& to, const std::string& behind = "") const {
    std::string body = whole.substr(whole.find('\n') + 1);
    const std::size_t at = body.find(from, body.find(behind));
    REQUIRE_MESSAGE(at != std::string::npos, from);
    body.replace(at, from.size(), to);
    std::ofstream(manifest, std::ios::binary)
        << fmt::format("{{\"checksum\":\"{:016x}\",\n{}", trireme::hash_bytes(body), body);
  }

  Result verify() const { return trireme::testing::run("checkpoint", "verify " + out); }
  Result resume() const {
    return trireme::testing::run("train_gpt",
                                 fmt::format("{} --steps 9 --resume {} --out {}", work.small_run(), out, out));
  }
  Result generate() const { return trireme::testing::run("generate", "--prompt A --length 2 --checkpoint " + out); }

  static constexpr const char* name = "manifest.json";
  Workplace work;
  std::string out;
  fs::path folder, manifest;
  std::string whole;
};

void check_refused(const Result& result, const fs::path& file, const std::string& part) {
  INFO(result.output);
  CHECK(result.code == 65);
  CHECK(occurrences(result.output, "trireme: FATAL[65] ") == 1);
  CHECK(contains(result.output, file.string()));
  CHECK_MESSAGE(contains(result.output, part), part);
  CHECK_FALSE(contains(result.output, "starting again may help"));
}

}  // namespace

TEST_CASE("manifests with correct checksums that describe an impossible run") {
  const SavedRun saved;
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& part) {
    saved.change(from, to);
    check_refused(saved.verify(), saved.manifest, part);
    check_refused(saved.resume(), saved.manifest, part);
  };
  refused(R"(\"samples\":48)", R"(\"samples\":-48)", "'samples' is -48; expected a whole number, 0 to 2^56");
  refused(R"(\"samples\":48)", R"(\"samples\":9223372036854775807)", "'samples' is 9223372036854775807; expected");
  refused("\"step\":6", "\"step\":5", "its step is 5, and the name of its folder is that of step 6");
  const std::string width = R"(\"width\":16)";
  for (const char* other : {"1099511627776", "32768"}) {
    saved.change(width, fmt::format(R"(\"width\":{})", other));
    check_refused(saved.generate(), saved.manifest, "the entry 'model' describes an impossible model: ");
    check_refused(saved.verify(), saved.manifest, "the entry 'model' describes an impossible model: ");
  }
  saved.change(R"("seed":"1337")", R"("seed":"\u001b[2J")");
  check_refused(saved.verify(), saved.manifest, R"(the entry 'seed' is "\x1b[2J"; expected a whole number)");
  const Result shown = run("checkpoint", "inspect " + saved.out);
  CHECK(shown.code == 0);
  CHECK(contains(shown.output, "\\x1b[2J"));
  CHECK_FALSE(contains(shown.output, "\x1b"));
}

TEST_CASE("manifests with right checksums whose tensors do not cover the files") {
  const SavedRun saved;
  const auto refused = [&](const std::string& part) {
    check_refused(saved.verify(), saved.manifest, part);
    check_refused(saved.resume(), saved.manifest, part);
    check_refused(saved.generate(), saved.manifest, part);
  };
  // The offset that the writer gave to a tensor with others before and after it.
  const std::string tensor = "\n\"blocks.1.norm1.weight\":", key = "\"offset\":";
  const std::size_t line = saved.whole.find(tensor), at = saved.whole.find(key, line) + key.size();
  REQUIRE(line != std::string::npos);
  const std::string offset = saved.whole.substr(at, saved.whole.find(',', at) - at);
  saved.change(key + offset, key + std::to_string(std::stoull(offset) + 1), tensor);
  refused("rank_00000.safetensors; expected " + offset);
  saved.change(key + offset, key + std::to_string(std::stoull(offset) - 64), tensor);
  refused("an overlap");
  saved.change(saved.whole.substr(line + 1, saved.whole.find('\n', line + 1) - line), "");
  refused("a hole");
}

TEST_CASE("a pipe or a folder in the place of a checkpoint's file is refused at once") {
  const SavedRun saved;
  const auto refused = [&](const fs::path& file) {
    const fs::path aside = saved.work.folder / "aside";
    fs::rename(file, aside);
    for (const bool pipe : {true, false}) {
      pipe ? static_cast<void>(::mkfifo(file.c_str(), 0600)) : static_cast<void>(fs::create_directory(file));
      for (const Result& result :
           {saved.verify(), saved.resume(), saved.generate(), run("checkpoint", "verify " + saved.folder.string())})
        check_refused(result, file, " is not a regular file");
      fs::remove(file);
    }
    fs::rename(aside, file);
  };
  refused(saved.folder / "rank_00000.safetensors");
  refused(saved.manifest);
  CHECK(saved.verify().code == 0);
  // A sparse file: its zeros take no space on the disk.
  fs::resize_file(saved.manifest, std::uintmax_t{5} << 30);
  check_refused(saved.verify(), saved.manifest, "has 5368709120 bytes; expected at most 1073741824");
}
