// Where a run is kept: --out and its default, the files of TensorBoard, and the port of Prometheus.
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/support.h"

using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// Runs lines of bash in the workplace, where $T is train_gpt with the flags of the small model.
Result inside(const Workplace& work, const std::string& lines) {
  std::string flags = work.small_run();
  flags.erase(flags.find("--out none"), std::string("--out none").size());
  return shell(
      fmt::format("cd {} && PATH={}:$PATH T=\"train_gpt {}\" && {}", work.folder.string(), TRIREME_BIN, flags, lines));
}

std::vector<fs::path> folders(const fs::path& folder) {
  std::vector<fs::path> found;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  return found;
}

/// Listens on a port of 127.0.0.1 while it lives.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address_), length) == 0);
    REQUIRE(::listen(fd_, 1) == 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &length);
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return ntohs(address_.sin_port); }

 private:
  int fd_;
  sockaddr_in address_{};
};

}  // namespace

TEST_CASE("an --out that cannot be made is refused before the plan, and a dry run keeps nothing") {
  const Workplace work;
  const Result refused = run("train_gpt", work.small_run() + "--out " + work.path("text.txt/run"));
  check_refused(refused, 74, {"[out] ", "text.txt is not a folder", "choose another --out"});
  CHECK_FALSE(contains(refused.output, "precision"));
  const Result dry = run("train_gpt", work.small_run() + "--dry-run --out " + work.path("run"));
  CHECK(dry.code == 0);
  CHECK_FALSE(contains(dry.output, "kept in"));
}

TEST_CASE("without --out a run is kept in runs/NAME-DATE, which the plan shows; three at once have three folders") {
  const Workplace work;
  const Result one = inside(work, "$T");
  INFO(one.output);
  CHECK(one.code == 0);
  const std::vector<fs::path> made = folders(work.folder / "runs");
  REQUIRE(made.size() == 1);
  CHECK(made[0].filename().string().starts_with("gpt-20"));
  CHECK(contains(one.output, "kept in          runs/" + made[0].filename().string()));
  CHECK(nlohmann::json::parse(content_of(made[0] / "config.json"))["out"] == "runs/" + made[0].filename().string());
  CHECK(fs::exists(made[0] / "checkpoints/step_00000006/manifest.json"));

  const Result resumed =
      inside(work, fmt::format("$T --config {}/config.json --steps 8 --resume auto", made[0].string()));
  INFO(resumed.output);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.output, "resuming after step 6"));
  CHECK(folders(work.folder / "runs").size() == 1);

  const Result three = inside(work, "for i in 1 2 3; do $T --seed $i & done; wait");
  INFO(three.output);
  CHECK(folders(work.folder / "runs").size() == 4);
  for (const fs::path& folder : folders(work.folder / "runs"))
    CHECK(metric(folder / "metrics.jsonl", "loss").size() >= 6);
}

TEST_CASE("ranks that are processes agree on the folder") {
  const Workplace work;
  const Result result = inside(work, fmt::format("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {} "
                                                 "--oversubscribe --bind-to none -n 2 $T --mesh dp=2 --tensorboard on",
                                                 TRIREME_MPIEXEC));
  INFO(result.output);
  CHECK(result.code == 0);
  const std::vector<fs::path> made = folders(work.folder / "runs");
  REQUIRE(made.size() == 1);
  CHECK(fs::exists(made[0] / "checkpoints/step_00000006/rank_00001.safetensors"));
  CHECK(folders(made[0] / "tensorboard").size() == 1);
}

TEST_CASE("nothing is made by --out none, a dry run, or a run that is refused") {
  const Workplace work;
  const Result none = inside(work, "$T --out none");
  CHECK(none.code == 0);
  CHECK(contains(none.output, "nothing is kept: --out none"));
  CHECK(inside(work, "$T --dry-run").code == 0);
  check_refused(inside(work, "$T --data absent.txt"), 64, {"absent.txt"});
  check_refused(inside(work, "$T --resume auto"), 64, {"--resume auto", "--out"});
  for (const char* flag : {"--checkpoint-every 2", "--keep 1", "--tensorboard on"})
    check_refused(inside(work, std::string("$T --out none ") + flag), 64, {"--out"});
  CHECK(folders(work.folder).size() == 1);  // text.txt
}

TEST_CASE("the validation loss of a resume is that of before, with another micro-batch and mesh") {
  const Workplace work;
  const auto loss_at_start = [&](const std::string& flags) {
    const std::string output =
        run("train_gpt", work.small_run() + "--steps 7 --resume " + work.path("run") + " " + flags).output;
    const std::string before = "step 6/7 | validation loss ";
    REQUIRE_MESSAGE(contains(output, before), output);
    return output.substr(output.find(before) + before.size(), 6);
  };
  REQUIRE(run("train_gpt", work.small_run() + "--out " + work.path("run")).code == 0);
  const std::string saved = fmt::format("{:.4f}", metric(work.path("run/metrics.jsonl"), "val_loss").back());
  for (const char* flags : {"--micro-batch 1", "--micro-batch 8", "--micro-batch 4 --mesh dp=2", "--mesh pp=2"})
    CHECK(loss_at_start(flags) == saved);
}

TEST_CASE("a port in use is refused before training, also under a launcher; a free one is served") {
  const Workplace work;
  const Listener listener;
  const std::string flags = work.small_run() + fmt::format("--prometheus 127.0.0.1:{} ", listener.port());
  check_refused(run("train_gpt", flags), 64, {"[--prometheus]", "another program"});
  check_ranks_refused([&] { return run_mpi(2, "train_gpt", flags + "--mesh dp=2"); }, 64,
                      {"[--prometheus]", "another program"});
  CHECK(run("train_gpt", flags + "--dry-run").code == 0);
  check_refused(run("train_gpt", work.small_run() + "--prometheus here"), 64, {"[--prometheus]", "HOST:PORT"});
  const Result served = run("train_gpt", work.small_run() + "--prometheus 0");
  CHECK(served.code == 0);
  CHECK(contains(served.output, "metrics for Prometheus: http://127.0.0.1:"));
}
