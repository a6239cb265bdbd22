// Saving while training continues: a checkpoint holds the values from when its save began, and gets its final name only
// when it is complete. Every rank learns of a failed save, which costs nothing else. Older checkpoints are removed only
// after newer ones are complete.
#include "parallel/checkpoint/saver.h"

#include <chrono>
#include <thread>

#include "tests/checkpoint/support.h"
#include "tests/support/events.h"
#include "train/runs/checkpointing.h"

using namespace trireme;
using namespace trireme::testing;
using checkpoint::Checkpoint;
using checkpoint::HeldTensor;
using checkpoint::Saver;
namespace fs = std::filesystem;

namespace {

/// A tensor [8, 4] sharded by rows over all ranks; all elements are `value`.
std::vector<HeldTensor> held_rows(const DeviceMesh& mesh, float value) {
  const std::int64_t rows = 8 / mesh.world().size();
  return {{.name = "x", .value = Tensor::full({rows, 4}, value), .global = {8, 4}, .start = {rows * mesh.rank(), 0}}};
}

std::vector<std::string> steps_in(const fs::path& folder) {
  std::vector<std::string> names = list_folder(folder);
  for (std::string& name : names) name = name.substr(0, name.find(".tmp."));
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a save holds the values from when it began, and gets its name when it is complete") {
  const TempFolder folder;
  run_mesh("dp=4", [&](const MeshPtr& mesh) {
    Saver saver(folder.path(), *mesh, {});
    CHECK_FALSE(saver.busy());
    CHECK_FALSE(saver.poll());
    std::vector<HeldTensor> held = held_rows(*mesh, 3);
    saver.begin(5, held, {{"progress", "somewhere"}});
    CHECK(saver.busy());
    kernels(Device::cpu).fill(held[0].value, 4);        // training continues
    CHECK_FALSE(fs::exists(folder / "step_00000005"));  // nothing is committed before all ranks call poll()
    std::optional<checkpoint::Saved> saved;
    int polls = 0;
    while (!(saved = saver.poll())) ++polls;
    CHECK(polls >= 1);  // one poll() learns that all ranks have written, a later one of the commit
    CHECK(saved->error.empty());
    CHECK(saved->path == folder / "step_00000005");
    CHECK(saved->bytes > 8 * 4 * sizeof(float));
    CHECK(saved->stall_seconds <= saved->seconds);
    CHECK_FALSE(saver.finish());
  });
  Checkpoint saved(folder / "step_00000005");
  CHECK(same_bits(saved.read("x"), Tensor::full({8, 4}, 3)));
  CHECK(saved.run("progress") == "somewhere");
  CHECK(saved.manifest().mesh == "dp=4,tp=1,pp=1");
  CHECK(saved.manifest().files.size() == 4);
  CHECK(steps_in(folder.path()) == Names{"step_00000005"});
}

TEST_CASE("only the newest checkpoints are kept, and unfinished ones are removed") {
  const TempFolder folder;
  fs::create_directories(folder / "step_00000001.tmp.0000000000000000");
  fs::create_directories(folder / "step_00000001.del.0000000000000000");
  fs::create_directories(folder / "step_00000002");  // no manifest: neither counted nor removed
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    Saver saver(folder.path(), *mesh, 2);
    if (mesh->rank() == 0) CHECK(steps_in(folder.path()) == Names{"step_00000002"});
    for (const std::int64_t step : {10, 20, 30, 40}) {
      saver.begin(step, held_rows(*mesh, static_cast<float>(step)), {});
      CHECK(saver.finish()->warning.empty());
    }
    // After a resume from an older step the same step is saved again: it replaces the folder of that name.
    saver.begin(40, held_rows(*mesh, 41), {});
    CHECK(saver.finish()->error.empty());
    // The checkpoint just written is kept, although others that a resume skipped have a later step.
    saver.begin(25, held_rows(*mesh, 25), {});
    CHECK(saver.finish()->error.empty());
  });
  CHECK(steps_in(folder.path()) == Names{"step_00000002", "step_00000025", "step_00000040"});
  CHECK(Checkpoint(folder / "step_00000040").read("x").data<float>()[0] == 41);
}

TEST_CASE("a save does not create the run's folder again after it was moved away") {
  const TempFolder folder;
  fs::create_directory(folder / "run");
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    Saver saver(folder / "run" / "checkpoints", *mesh, {});
    saver.begin(1, held_rows(*mesh, 1), {});
    CHECK(saver.finish()->error.empty());
    if (mesh->rank() == 0) fs::rename(folder / "run", folder / "moved");
    mesh->world().barrier();
    saver.begin(2, held_rows(*mesh, 2), {});
    CHECK(contains(saver.finish()->error, "cannot create the folder " + (folder / "run/checkpoints").string()));
  });
  CHECK(list_folder(folder.path()) == Names{"moved"});
  CHECK(steps_in(folder / "moved/checkpoints") == Names{"step_00000001"});
}

TEST_CASE("before a run it is tried whether all ranks can save, without a trace") {
  const TempFolder folder;
  run_mesh("dp=2", [&](const MeshPtr& mesh) { Saver(folder / "checkpoints", *mesh, {}).require_possible(); });
  CHECK(list_folder(folder.path()).empty());

  for (const std::string name : {"0", "1"}) fs::create_directory(folder / name);
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    const Saver saver(folder / std::to_string(mesh->rank()) / "checkpoints", *mesh, {});  // as with two disks
    const std::string error = error_of([&] { saver.require_possible(); });
    INFO(error);
    CHECK(contains(error, "rank 1 cannot write where rank 0 can"));
    CHECK(contains(error, "expected one folder for all ranks"));
  });
  CHECK(list_folder(folder / "0").empty());

  fs::create_directory_symlink(folder / "not mounted", folder / "link");
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    const Saver saver(folder / "link", *mesh, {});
    CHECK(contains(error_of([&] { saver.require_possible(); }), "no checkpoint could be saved: cannot create"));
  });
  CHECK(fs::is_symlink(folder / "link"));
}

// There is no event between the end of the writing and the commit, so this sleeps.
TEST_CASE("a save whose folder is removed says that, and not what a reader should do" * doctest::test_suite("clock")) {
  const TempFolder folder;
  fs::create_directory(folder / "run");
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    Saver saver(folder / "run" / "checkpoints", *mesh, {});
    saver.begin(1, held_rows(*mesh, 1), {});
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the files are written
    mesh->world().barrier();
    if (mesh->rank() == 0) fs::remove_all(folder / "run");
    mesh->world().barrier();
    const std::string error = saver.finish()->error;
    INFO(error);
    CHECK(contains(error, " was removed or moved while it was written"));
    CHECK_FALSE(contains(error, "--keep"));
  });
}

TEST_CASE("a save that fails is told to every rank, and the next one may succeed") {
  const TempFolder folder;
  const fs::path all = folder / "checkpoints";
  run_mesh("dp=2,tp=2", [&](const MeshPtr& mesh) {
    Saver saver(all, *mesh, {});
    saver.begin(1, held_rows(*mesh, 1), {});
    CHECK(saver.finish()->error.empty());
    // A file stands in the place of the folder: rank 0 finds this before anything is written.
    if (mesh->rank() == 0) {
      fs::rename(all, folder / "moved");
      write_plainly(all, "in the way");
    }
    mesh->world().barrier();
    saver.begin(2, held_rows(*mesh, 2), {});
    const auto refused = saver.finish();
    CHECK(refused->error.find("cannot create the folder " + all.string()) != std::string::npos);
    mesh->world().barrier();
    if (mesh->rank() == 0) {
      fs::remove(all);
      fs::rename(folder / "moved", all);
    }
    mesh->world().barrier();
    saver.begin(3, held_rows(*mesh, 3), {});
    CHECK(saver.finish()->error.empty());
  });
  CHECK(steps_in(all) == Names{"step_00000001", "step_00000003"});
}

TEST_CASE("a rank that runs out of space makes the save fail, and leaves nothing") {
  const TempFolder folder;
  run_mesh("dp=2", [&](const MeshPtr& mesh) {
    Saver saver(folder.path(), *mesh, {});
    const std::int64_t rows = mesh->rank() == 0 ? 2 : 4096;  // only the second rank's file is too large
    const std::vector<HeldTensor> held = {{.name = mesh->rank() == 0 ? "small" : "large",
                                           .value = Tensor::full({rows, 4}, 1),
                                           .global = {rows, 4},
                                           .start = {0, 0}}};
    std::unique_ptr<FileSizeLimit> limit;
    if (mesh->rank() == 0) limit = std::make_unique<FileSizeLimit>(4096);
    mesh->world().barrier();
    saver.begin(1, held, {});
    const auto failed = saver.finish();
    CHECK(failed->error.find("rank_00001.safetensors: File too large; needed") != std::string::npos);
    mesh->world().barrier();
    limit.reset();
    mesh->world().barrier();
    CHECK(list_folder(folder.path()).empty());
    saver.begin(2, held, {});
    CHECK(saver.finish()->error.empty());
  });
  CHECK(steps_in(folder.path()) == Names{"step_00000002"});
}

TEST_CASE("a checkpoint is not begun where it would not fit") {
  const TempFolder folder;
  CHECK_THROWS_WITH_AS(require_space(folder.path(), std::uint64_t{1} << 60), doctest::Contains("free some space"),
                       Error);
  CHECK_NOTHROW(require_space(folder.path(), 1));
}

TEST_CASE("copies share the writing, and every element is written once") {
  run_mesh("dp=2,cp=2,tp=2", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 1);
    build.parameter("large", {512, 256}, {}, nn::Init::normal(1));
    build.parameter("cut", {512, 256}, {.tp = placement::S(1)}, nn::Init::normal(1));
    for (int i = 0; i < 40; ++i) build.parameter(fmt::format("small{}", i), {30}, {}, nn::Init::normal(1));
    const auto parts =
        checkpoint::owned_parts(checkpoint::held_tensors(whole_weights(build.parameters()), build.buffers(), *mesh));
    std::int64_t elements = 0, small = 0;
    for (const HeldTensor& part : parts) {
      elements += part.value.count();
      small += part.name.starts_with("small") ? 1 : 0;
    }
    CHECK(small == 5);  // of 40, on 8 ranks
    const Tensor sum = Tensor::full({1}, static_cast<double>(elements), DType::i64);
    mesh->world().all_reduce(sum).wait();
    CHECK(*sum.data<std::int64_t>() == 2 * 512 * 256 + 40 * 30);
    CHECK(elements == 2 * 512 * 256 / 8 + 5 * 30);
  });
}

TEST_CASE("a run saves by steps, goes on when a save fails, and ends after three") {
  const TempFolder folder;
  std::vector<std::string> lines;
  const auto run = [&](int fail_from) {
    run_mesh("dp=2", [&](const MeshPtr& mesh) {
      GptOptions o = small_options("dp=2");
      o.run.out = folder.path();
      o.run.checkpoint_every = 2;
      o.run.keep = 1;
      GptRun run(o, mesh);
      Messages events([&](const std::string& line) {
        if (mesh->rank() == 0) lines.push_back(line);
      });
      Checkpointing checkpoints(o, run.trainer, test_identity(), {}, events);
      for (int step = 1; step <= 10; ++step) {
        run.steps(1);
        mesh->world().barrier();
        if (step == fail_from && mesh->rank() == 0) {
          fs::rename(folder / "checkpoints", folder / "moved");
          write_plainly(folder / "checkpoints", "in the way");
        }
        mesh->world().barrier();
        const bool goes_on = checkpoints.after_step(run.progress);
        CHECK(goes_on);
      }
      checkpoints.finish(run.progress);
    });
  };
  run(0);
  CHECK(lines.size() == 5);
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i].find(fmt::format("saved step {} in ", 2 * i + 2)) == 0);
  CHECK(steps_in(folder / "checkpoints") == Names{"step_00000010"});

  lines.clear();
  CHECK_THROWS_WITH_AS(run(1), doctest::Contains("3 saves in a row have failed; earlier checkpoints are as they were"),
                       Error);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("could not save step 2: cannot create the folder") == 0);
  CHECK(lines[1].find("(2 of 3 failures in a row") != std::string::npos);
}
