// Tests every optimizer with ZeRO 0 to 3: stages give equal bits, and a run resumes on the same and on another mesh.
// training_test.cpp has more tests of AdamW.
#include "tests/zero/training.h"

#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

namespace optimizers_test {
namespace {

const std::vector<std::string> optimizers = {"sgd", "lion", "muon", "adafactor"};

}  // namespace

TEST_CASE("each optimizer: stages 1 to 3 leave what stage 0 leaves, bit for bit" * doctest::test_suite("thorough")) {
  for (const std::string& optimizer : optimizers) {
    for (const std::string& mesh : sanitized ? Meshes{"dp=3"} : Meshes{"dp=1", "dp=3", "dp=2,tp=2", "dp=2,pp=2"}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (sanitized && dtype != DType::bf16) continue;
        const TempFolder folder;
        ZeroRun run{.mesh = mesh, .dtype = dtype, .optimizer = optimizer};
        const std::string whole = trained(run, 4, folder / "0");
        for (const std::int64_t zero : {1, 2, 3}) {
          run.zero = zero;
          const bool same = trained(run, 4, folder / std::to_string(zero)) == whole;
          CHECK_MESSAGE(same, optimizer, " on ", mesh, " zero ", zero, " ", name(dtype));
        }
      }
    }
  }
}

TEST_CASE("each optimizer: a stopped run goes on bit for bit, and moves between stages and meshes" *
          doctest::test_suite("thorough")) {
  for (const std::string& optimizer : optimizers) {
    for (const std::int64_t zero : {0, 1, 3}) {
      if (sanitized && zero != 1) continue;
      const TempFolder folder;
      const ZeroRun run{.mesh = "dp=2,tp=2", .zero = zero, .dtype = DType::bf16, .optimizer = optimizer};
      const std::string straight = trained(run, 6, folder / "straight");
      trained(run, 3, folder / "first");
      CHECK_MESSAGE(trained(run, 3, folder / "second", folder / "first") == straight, optimizer, " zero ", zero);
      ZeroRun other = run;
      other.zero = zero == 3 ? 0 : 2;
      CHECK_MESSAGE(trained(other, 3, folder / "moved", folder / "first") == straight, optimizer, " zero ", zero);
      const ZeroRun elsewhere{.mesh = "dp=3,pp=2", .zero = zero, .dtype = DType::bf16, .optimizer = optimizer};
      CHECK(trained(elsewhere, 0, folder / "elsewhere", folder / "straight") == straight);
    }
  }
}

TEST_CASE("moments in bf16 are rounded alike on every mesh and stage, and resumed") {
  for (const std::string& optimizer : std::vector<std::string>{"adamw", "sgd", "lion", "muon"}) {
    const TempFolder folder;
    ZeroRun run{.mesh = "dp=3", .optimizer = optimizer, .moments = DType::bf16};
    const std::string straight = trained(run, 4, folder / "straight");
    trained(run, 2, folder / "first");
    for (const std::int64_t zero : {1, 2, 3}) {
      run.zero = zero;
      const bool same = trained(run, 2, folder / std::to_string(zero), folder / "first") == straight;
      CHECK_MESSAGE(same, optimizer, " zero ", zero);
    }
    checkpoint::Checkpoint saved(find_saved_run(folder / "straight"));
    const std::string name = optimizer == "adamw" || optimizer == "lion" ? "m" : "momentum";
    CHECK(saved.read("optimizer." + name + ".blocks.1.mlp.up.weight").dtype() == DType::bf16);
    ZeroRun in_f32{.mesh = "dp=1", .optimizer = optimizer};
    CHECK(contains(failure([&] { trained(in_f32, 0, folder / "other", folder / "first"); }),
                   "was saved with --moments bf16, and this run has f32; change --moments"));
  }
}

TEST_CASE("the average of the weights: the same under every stage, saved, and exchanged with the weights") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TempFolder folder;
    ZeroRun run{.mesh = "dp=2,pp=2", .dtype = dtype, .ema_decay = 0.5};
    const std::string straight = trained(run, 4, folder / "0");
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      run.zero = zero;
      const std::string name = std::to_string(zero);
      trained(run, 2, folder / ("first " + name));
      CHECK(trained(run, 2, folder / ("second " + name), folder / ("first " + name)) == straight);
      const GptOptions o = options_of(run);
      run_mesh(run.mesh, [&](const MeshPtr& mesh) {
        GptRun there(o, mesh);
        there.optimizer().swap_average();  // before any gradient
        there.optimizer().swap_average();
        there.load(folder / ("first " + name));
        there.trainer.weights_changed();
        there.steps(2);
        there.optimizer().swap_average();
        there.save(folder / ("swapped " + name));
        there.optimizer().swap_average();
        there.save(folder / ("back " + name));
        there.trainer.check_replicas();
      });
      CHECK(contents(folder / ("back " + name)) == straight);
      checkpoint::Checkpoint saved(find_saved_run(folder / "0")), swapped(find_saved_run(folder / ("swapped " + name)));
      const std::string weight = "blocks.1.mlp.up.weight",
                        master = dtype == DType::f32 ? weight : "optimizer.master." + weight;
      const Tensor average = saved.read("optimizer.ema." + weight);
      CHECK(same_bits(swapped.read(master), average));
      CHECK(same_bits(swapped.read(weight), cast(average, dtype)));
      CHECK(same_bits(swapped.read("optimizer.ema." + weight), saved.read(master)));
      CHECK(!same_bits(average, saved.read(master)));
      run_mesh("tp=2", [&](const MeshPtr& mesh) {
        Gpt model(nn::Build(mesh, dtype, 1), o.model.config);
        checkpoint::Checkpoint own = open_saved_run(mesh->world(), folder / "0");
        load_average(own, model);
        for (const ParameterPtr& p : model.parameters())
          if (p->name == weight) CHECK(same_bits(whole(p->local, *p, *mesh), cast(average, dtype)));
      });
    }
  }
}

TEST_CASE("Muon and Adafactor on any mesh train as on one rank, up to the rounding of gradients") {
  struct Case {
    std::string mesh;
    std::int64_t zero;
  };
  for (const std::string optimizer : {"muon", "adafactor"}) {
    const TempFolder folder;
    trained({.mesh = "dp=1", .optimizer = optimizer}, 3, folder / "one");
    for (const Case& c : {Case{"dp=3", 1}, Case{"tp=2", 0}, Case{"dp=2,tp=2", 0}, Case{"dp=2,tp=2", 2}, Case{"pp=2", 0},
                          Case{"cp=2", 3}, Case{"dp=2,tp=2,pp=2", 3}}) {
      if (sanitized && c.zero != 2) continue;
      trained({.mesh = c.mesh, .zero = c.zero, .optimizer = optimizer}, 3, folder / c.mesh);
      const double difference = largest_difference(folder / c.mesh, folder / "one");
      CHECK_MESSAGE(difference < 2e-5, optimizer, " on ", c.mesh, " zero ", c.zero);
    }
  }
}

}  // namespace optimizers_test
