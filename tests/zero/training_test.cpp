// A GPT trained with ZeRO 0 to 3: the same bits where the order of sums allows, the same saved file, the same tied
// weights.
#include "tests/zero/training.h"

#include "tests/support/errors.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("stages 1 to 3 leave what stage 0 leaves, bit for bit: weights, masters, moments") {
  const Meshes meshes = {"dp=1", "dp=2", "dp=3", "cp=1,dp=2,tp=2", "dp=2,pp=2"};
  for (const std::string& mesh : sanitized ? Meshes{"dp=3", "dp=2,pp=2"} : meshes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (sanitized && dtype != DType::bf16) continue;
      const TempFolder folder;
      const std::string whole = trained({.mesh = mesh, .dtype = dtype}, 4, folder / "0");
      for (const std::int64_t zero : {1, 2, 3}) {
        const bool same =
            trained({.mesh = mesh, .zero = zero, .dtype = dtype}, 4, folder / std::to_string(zero)) == whole;
        CHECK_MESSAGE(same, mesh, " zero ", zero, " ", name(dtype));
      }
    }
  }
}

TEST_CASE("with accumulation: stage 1 has the bits of stage 0, stages 2 and 3 those of each other") {
  for (const std::string& mesh : Meshes{"dp=2", "dp=2,pp=2"}) {
    for (const std::string& pipeline : {std::string("1f1b"), std::string("gpipe")}) {
      if (sanitized && (mesh == "dp=2" || pipeline == "gpipe")) continue;
      const TempFolder folder;
      std::vector<std::string> files;
      for (const std::int64_t zero : {0, 1, 2, 3}) {
        files.push_back(trained({.mesh = mesh, .zero = zero, .micro_batches = 3, .pipeline = pipeline}, 3,
                                folder / std::to_string(zero)));
      }
      CHECK(files[1] == files[0]);
      CHECK(files[3] == files[2]);
      // Sums over micro-batches and ranks have another order, and AdamW divides by the root of small sums.
      CHECK(largest_difference(folder / "2", folder / "0") < 1e-4);
    }
  }
}

TEST_CASE("hybrid sharding trains as stage 0 does") {
  const TempFolder folder;
  trained({.mesh = "dp=4", .zero = 0}, 3, folder / "0");
  for (const std::int64_t zero : {1, 2, 3}) {
    const auto out = folder / std::to_string(zero);
    trained({.mesh = "dp=4", .zero = zero, .dp_shard = 2}, 3, out);
    CHECK(largest_difference(out, folder / "0") < 1e-4);
  }
}

TEST_CASE("a stopped run goes on bit for bit, and moves between stages and meshes") {
  for (const std::int64_t zero : {1, 2, 3}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (sanitized && (zero == 2 || dtype != DType::bf16)) continue;
      const TempFolder folder;
      const ZeroRun run{.mesh = "dp=2,pp=2", .zero = zero, .dtype = dtype};
      const std::string straight = trained(run, 6, folder / "straight");
      trained(run, 3, folder / "first");
      CHECK(trained(run, 3, folder / "second", folder / "first") == straight);
      ZeroRun other = run;
      other.zero = 0;
      CHECK(trained(other, 3, folder / "moved", folder / "first") == straight);
      trained({.mesh = "dp=3", .zero = zero, .dtype = dtype}, 0, folder / "elsewhere", folder / "straight");
      CHECK(largest_difference(folder / "elsewhere", folder / "straight") == 0);
    }
  }
}

TEST_CASE("trap 1: both copies of a tied embedding stay bit-equal for 20 steps, under every stage") {
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    const GptOptions o = options_of({.mesh = "dp=2,pp=2", .zero = zero, .micro_batches = 3});
    Collected copies;
    run_mesh("dp=2,pp=2", [&](const MeshPtr& mesh) {
      GptRun run(o, mesh);
      run.steps(20);
      for (const StateTensor& weight : run.trainer.optimizer().weights()) {
        if (weight.parameter->name != "wte.weight") continue;
        const std::int64_t start = weight.rectangle().start[0];
        copies.add(fmt::format("from row {}", start), clone(weight.value));
      }
    });
    CHECK(copies.all().size() == (zero == 3 ? 2 : 1));
    for (const auto& [rows, tensors] : copies.all()) {
      CHECK(tensors.size() == (zero == 3 ? 2 : 4));
      for (const Tensor& copy : tensors) CHECK_MESSAGE(same_bits(copy, tensors.front()), "zero ", zero, " ", rows);
    }
  }
}

TEST_CASE("flags without a use are refused, and a shard size that does not divide") {
  const auto refused = [](const ZeroRun& run, const std::function<void(MeshOptions&)>& change) {
    return error_of([&] {
      GptOptions o = options_of(run);
      change(o.mesh);
      validate(o);
    });
  };
  CHECK(contains(refused({.zero = 2}, [](MeshOptions& o) { o.zero_prefetch = 2; }),
                 "--zero-prefetch has no effect with --zero 2"));
  CHECK(contains(refused({.zero = 1}, [](MeshOptions& o) { o.zero_resident = 0; }), "expected --zero 3"));
  CHECK(contains(refused({.zero = 0}, [](MeshOptions& o) { o.dp_shard = 1; }), "expected --zero 1, 2 or 3"));
  CHECK(contains(refused({.mesh = "dp=4", .zero = 3}, [](MeshOptions& o) { o.dp_shard = 3; }),
                 "3 does not divide dp x cp = 4: 4 / 3 leaves 1"));
}
