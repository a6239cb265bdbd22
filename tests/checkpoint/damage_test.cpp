// Damaged checkpoints: every flipped bit and every truncated or missing file is found and named. With several
// checkpoints the newest intact one is loaded, and a line says why each newer one was not.
#include <algorithm>
#include <array>
#include <mutex>
#include <random>

#include "core/hash.h"
#include "parallel/checkpoint/chunks.h"
#include "parallel/checkpoint/resume_attempts.h"
#include "tests/checkpoint/support.h"

using namespace trireme;
using namespace trireme::testing;
using checkpoint::Checkpoint;
namespace fs = std::filesystem;

namespace {

/// Runs `saves` steps on four ranks, with a save after each.
void make_run(const fs::path& out, int saves) {
  run_mesh("dp=2,tp=2", [&](const MeshPtr& mesh) {
    GptRun run(small_options("dp=2,tp=2"), mesh);
    for (int i = 0; i < saves; ++i) {
      run.steps(1);
      run.save(out);
    }
  });
}

/// Resumes on two ranks as --resume auto does. Returns the lines that it prints, then the step or the error.
std::vector<std::string> resumed(const fs::path& out) {
  std::vector<std::string> lines;
  std::mutex mutex;
  run_mesh("tp=2", [&](const MeshPtr& mesh) {
    GptRun run(small_options("tp=2"), mesh);
    std::vector<std::string> mine;
    try {
      const auto found = load_newest_run(out, run.trainer.model(), run.trainer.optimizer(), test_identity(),
                                         [&](const std::string& line) { mine.push_back(line); });
      mine.push_back(found ? fmt::format("step {}", found->progress.steps) : "nothing");
    } catch (const Error& error) { mine.push_back(fmt::format("{} {}", static_cast<int>(error.code()), error.what())); }
    const std::scoped_lock lock(mutex);
    if (!lines.empty()) CHECK(lines == mine);  // the same on all ranks
    lines = mine;
  });
  return lines;
}

}  // namespace

TEST_CASE("every one of many random flips is found, with the file and the bytes it lies in") {
  const TempFolder folder;
  make_run(folder.path(), 1);
  const fs::path saved = find_saved_run(folder.path());
  std::vector<std::pair<fs::path, std::string>> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(saved))
    files.emplace_back(entry.path(), read_file(entry.path()));
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() == 5);  // four ranks and the manifest
  CHECK_NOTHROW(Checkpoint(saved).verify());
  std::mt19937_64 random(11);
  int undetected = 0, unnamed = 0;
  for (int i = 0; i < (sanitized ? 200 : 2000); ++i) {
    const auto& [path, content] = files[random() % files.size()];
    const std::size_t at = random() % content.size();
    std::string bytes = content;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    write_plainly(path, bytes);
    // Reading every tensor, as the ranks of a run do together, finds the damage without a scan of the files.
    const Caught error = caught([&] {
      Checkpoint damaged(saved);
      for (const std::string& name : damaged.names()) damaged.read(name);
    });
    if (error.code != ExitCode::data) ++undetected;
    if (!error.has(path.string())) ++unnamed;
    write_plainly(path, content);
  }
  CHECK(undetected == 0);
  CHECK(unnamed == 0);
  CHECK_NOTHROW(Checkpoint(saved).verify());
}

TEST_CASE("cut, extended and missing files are refused by name and byte") {
  const TempFolder folder;
  make_run(folder.path(), 1);
  const fs::path saved = find_saved_run(folder.path());
  const fs::path file = saved / "rank_00001.safetensors";
  const std::string bytes = read_file(file);
  const auto verify = [&] { return caught([&] { Checkpoint(saved).verify(); }); };
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, bytes.size() / 2, bytes.size() - 1}) {
    write_plainly(file, bytes.substr(0, length));
    CHECK(verify().code == ExitCode::data);
    CHECK(verify().has(fmt::format("{} has {} bytes; expected {}; it was cut short at byte {}", file.string(), length,
                                   bytes.size(), length)));
  }
  write_plainly(file, bytes + "x");
  CHECK(verify().has("it was extended at byte"));
  fs::remove(file);
  CHECK(verify().code == ExitCode::data);
  CHECK(verify().has(file.string() + " is missing"));
  write_plainly(file, bytes);
  CHECK(verify().code == ExitCode::ok);
  const std::string manifest = read_file(saved / "manifest.json");
  for (const std::size_t length : {std::size_t{0}, std::size_t{20}, manifest.size() - 1}) {
    write_plainly(saved / "manifest.json", manifest.substr(0, length));
    CHECK(verify().code == ExitCode::data);
    CHECK(verify().has((saved / "manifest.json").string()));
  }
}

TEST_CASE("a checkpoint that is removed while it is read is not reported as damaged") {
  const TempFolder folder;
  make_run(folder.path(), 1);
  const fs::path saved = find_saved_run(folder.path());
  Checkpoint reader(saved);
  fs::rename(saved, folder / "moved");  // as prune() does first
  for (const Caught& error :
       {caught([&] { reader.verify(); }), caught([&] { static_cast<void>(Checkpoint(saved)); })}) {
    CHECK(error.code == ExitCode::data);
    CHECK(error.has(saved.string() +
                    " is no longer there; expected it to stay while it is read; a run with --keep may " +
                    "have removed it: take a newer one"));
  }
}

TEST_CASE("auto takes the newest intact checkpoint, and says why it skips newer ones") {
  const TempFolder folder;
  CHECK(resumed(folder.path()) == std::vector<std::string>{"nothing"});
  make_run(folder.path(), 4);
  const fs::path all = folder / "checkpoints";
  CHECK(resumed(folder.path()) == std::vector<std::string>{"step 4"});

  // An interrupted save is skipped, with a message.
  fs::create_directories(all / "step_00000005.tmp.0123456789abcdef");
  std::vector<std::string> lines = resumed(folder.path());
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "skipped step_00000005.tmp.0123456789abcdef: no manifest in " + all.string()));
  CHECK(lines[1] == "step 4");
  checkpoint::remove_leftovers(all);
  fs::remove(all / "step_00000004" / "manifest.json");
  lines = resumed(folder.path());
  CHECK(contains(lines.front(), "skipped step_00000004: no manifest in "));
  CHECK(lines.back() == "step 3");
  CHECK_THROWS_WITH_AS(find_saved_run(folder.path()), doctest::Contains("step_00000004: no manifest"), Error);

  // A flipped bit in the data is found while loading, by the rank that reads it.
  const fs::path data = all / "step_00000003" / "rank_00002.safetensors";
  std::string bytes = read_file(data);
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 0x10);
  write_plainly(data, bytes);
  lines = resumed(folder.path());
  REQUIRE(lines.size() == 3);
  CHECK(contains(lines[1], "skipped step_00000003: " + data.string() + ": chunk 0, bytes 0 to"));
  CHECK(lines[2] == "step 2");
  // A checkpoint that was renamed to another step is not taken for that step, and not for its own.
  fs::rename(all / "step_00000001", all / "step_00000900");
  lines = resumed(folder.path());
  CHECK(contains(lines.front(), "skipped step_00000900: "));
  CHECK(contains(lines.front(), "its step is 1, and the name of its folder is that of step 900"));
  CHECK(lines.back() == "step 2");

  fs::remove(all / "step_00000002" / "rank_00000.safetensors");
  write_plainly(all / "step_00000900" / "manifest.json", "{}");
  lines = resumed(folder.path());
  CHECK(lines.size() == 5);
  CHECK(contains(lines.back(), "65 trireme: [resume] " + all.string() + " has no checkpoint that is whole"));
}

TEST_CASE("a checkpoint from which two runs have died is tried after all others, and again if it is the only one") {
  const TempFolder folder;
  make_run(folder.path(), 2);
  const fs::path all = folder / "checkpoints";
  for (int time = 0; time < 4; ++time) CHECK(resumed(folder.path()) == std::vector<std::string>{"step 2"});
  const auto died_of = [&](const char* name) { checkpoint::ResumeAttempts(all).begin(all / name); };
  died_of("step_00000002");
  CHECK(resumed(folder.path()) == std::vector<std::string>{"step 2"});
  died_of("step_00000002");
  std::vector<std::string> lines = resumed(folder.path());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "stepped over step_00000002: 2 runs that resumed from there died before they had made a step");
  CHECK(lines[1] == "step 1");
  for (int time = 0; time < 2; ++time) died_of("step_00000001");
  CHECK(resumed(folder.path()) == std::vector<std::string>{"step 2"});  // both have: the newest is first again
  checkpoint::ResumeAttempts(all).succeeded(all / "step_00000001");     // which a run went on from; it is at step 2 now
  CHECK(resumed(folder.path()).back() == "step 1");
  make_run(folder.path(), 2);
  CHECK(resumed(folder.path()) == std::vector<std::string>{"step 2"});

  for (int time = 0; time < 2; ++time) died_of("step_00000002");
  fs::remove_all(all / "step_00000001");
  CHECK(resumed(folder.path()) == std::vector<std::string>{"step 2"});
}

TEST_CASE("several ranks may take back the same attempt, and it is taken back once") {
  const TempFolder folder;
  const auto attempts = [&] { return checkpoint::ResumeAttempts(folder.path()); };
  const fs::path saved = folder / "step_00000002", other = folder / "step_00000001";
  CHECK(attempts().begin(other) == 0);
  CHECK(attempts().begin(saved) == 0);
  CHECK(attempts().begin(saved) == 1);
  for (int rank = 0; rank < 3; ++rank) attempts().take_back(saved, 1);
  CHECK(attempts().of(saved) == 1);
  attempts().take_back(saved, 0);
  CHECK(attempts().of(saved) == 0);
  CHECK(attempts().of(other) == 1);
  attempts().take_back(other, 0);
  CHECK(list_folder(folder.path()).empty());
}

TEST_CASE("a checkpoint under another step's name is refused, and one under a name of its own is read") {
  const TempFolder folder;
  make_run(folder.path(), 1);
  const fs::path saved = find_saved_run(folder.path()), all = folder / "checkpoints";
  fs::copy(saved, folder / "best", fs::copy_options::recursive);
  CHECK(Checkpoint(folder / "best").manifest().step == 1);
  fs::rename(saved, all / "step_00000020");
  for (const fs::path& path : {all / "step_00000020", all / "step_00000020" / ""}) {
    const Caught error = caught([&] { const Checkpoint renamed(path); });
    CHECK(error.code == ExitCode::data);
    CHECK(error.has("its step is 1, and the name of its folder is that of step 20"));
    CHECK(error.has("step_00000001"));
  }
  CHECK(caught([&] { find_saved_run(folder.path()); }).code == ExitCode::data);
  fs::rename(all / "step_00000020", saved);
  CHECK_NOTHROW(Checkpoint(find_saved_run(folder.path())).verify());
}

TEST_CASE("a file whose header contradicts the manifest is refused, with the byte, though all checksums are right") {
  const TempFolder folder;
  make_run(folder.path(), 1);
  const fs::path saved = find_saved_run(folder.path()), file = saved / "rank_00000.safetensors";
  const std::string bytes = read_file(file), manifest = read_file(saved / "manifest.json");
  const auto sum_of = [](const std::string& content) {
    return fmt::format("{:016x}", checkpoint::checksums(std::as_bytes(std::span(content))).at(0));
  };
  REQUIRE(bytes.size() < checkpoint::chunk_bytes);
  /// Changes the header and corrects both checksums, as a bug in a writer would leave them.
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes, body = manifest.substr(manifest.find('\n') + 1);
    REQUIRE(from.size() == to.size());
    REQUIRE(contains(changed, from));
    changed.replace(changed.find(from), from.size(), to);
    REQUIRE(contains(body, sum_of(bytes)));
    body.replace(body.find(sum_of(bytes)), 16, sum_of(changed));
    write_plainly(file, changed);
    write_plainly(saved / "manifest.json", fmt::format("{{\"checksum\":\"{:016x}\",\n{}", hash_bytes(body), body));
    return caught([&] { Checkpoint(saved).verify(); });
  };
  CHECK(with("blocks.0", "blocks.0").code == ExitCode::ok);
  for (const auto& [from, to, what] :
       {std::array<std::string, 3>{"\"blocks.0.", "\"blocks.7.", "the header lacks \"blocks.0."},
        {"\"F32\",\"shape\"", "\"I32\",\"shape\"", "as i32 "}}) {
    const Caught error = with(from, to);
    CAPTURE(error.message);
    CHECK(error.code == ExitCode::data);
    CHECK(error.has(file.string() + " byte "));
    CHECK(error.has(what));
  }
}

TEST_CASE("a checkpoint of many files is read with few of them open") {
  const TempFolder folder;
  const std::string mesh = "dp=4,tp=2";
  run_mesh(mesh, [&](const MeshPtr& on) {
    GptOptions options = small_options(mesh);
    GptRun run(options, on);
    run.steps(1);
    run.save(folder.path());
  });
  const fs::path saved = find_saved_run(folder.path());
  const auto files = [&] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = files();
  Checkpoint reader(saved);
  REQUIRE(reader.manifest().files.size() == 8);
  reader.verify();
  CHECK(files() - before <= 4);
  for (const std::string& name : reader.names()) reader.read(name);
  CHECK(files() - before <= 4);
}
