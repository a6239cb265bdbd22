// A bit flip in a weight is found, with its tensor and rank, before anything is saved.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/guards/support.h"
#include "tests/support/errors.h"
#include "tests/support/events.h"
#include "tests/support/files.h"
#include "tests/support/sanitized.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Flips the lowest bit of the second byte of element `index` of a dense tensor.
void flip_bit(const Tensor& x, std::int64_t index) {
  auto* bytes = static_cast<std::byte*>(x.raw()) + index * static_cast<std::int64_t>(size_of(x.dtype()));
  bytes[1] ^= std::byte{1};
}

/// This rank's weight of that name, or its shard of it.
Tensor weight(Trainer& trainer, const std::string& name) {
  for (const StateTensor& w : trainer.optimizer().weights())
    if (w.parameter->name == name) return w.value;
  return {};
}
Tensor state(Trainer& trainer, const std::string& kind, const std::string& name) {
  for (const StateTensor& s : trainer.optimizer().state())
    if (s.name == kind && s.parameter->name == name) return s.value;
  return {};
}

/// The error that ended a run, and the number of steps made.
struct Ended {
  std::string error;
  std::int64_t steps = 0;
};
/// Trains up to six steps with guards that compare copies in every third step. Calls `damage` on rank `rank` before
/// step `at`.
template <class Damage>
Ended run(GptOptions o, int rank, const Damage& damage, std::int64_t at = 3) {
  o.guards.check_replicas = 3;
  Ended ended;
  ended.error = failure([&] {
    on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
      Progress progress;
      EventStream events;
      Guards guards(options, trainer, nullptr, progress, events);
      make_steps(
          guards, trainer, options, progress, 6,
          [&](std::int64_t step) {
            const bool sharded = options.mesh.zero > 0;
            if (step == at && (mesh.rank() == rank || sharded)) {
              trainer.optimizer().weights();  // settles: collective with ZeRO, so every rank calls it
              if (mesh.rank() == rank) damage(trainer);
            }
          },
          [&](bool) {
            if (mesh.rank() == 0) ended.steps = progress.steps;
          });
    });
  });
  return ended;
}

constexpr const char* matrix = "blocks.1.mlp.up.weight";
constexpr auto no_damage = [](Trainer&) {};

}  // namespace

TEST_CASE("copies that are equal pass, on every mesh and with every ZeRO stage") {
  for (const Case& c : {Case{"dp=1"}, Case{"dp=2,tp=2"}, Case{"dp=2,pp=2"}, Case{"dp=3", 1}, Case{"dp=2,tp=2", 2},
                        Case{"dp=2,pp=2", 3}, Case{"dp=2,ep=2", 1}, Case{"dp=1,cp=2", 3}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      GptOptions o = guarded_options(c);
      o.precision.dtype = dtype;
      CHECK_MESSAGE(run(o, 0, no_damage).error == "nothing", c.mesh, " zero ", c.zero);
    }
  }
}

TEST_CASE("the rank in the minority is named, and of two copies both") {
  const auto damage = [](Trainer& trainer) { flip_bit(weight(trainer, matrix), 7); };
  const Ended three = run(guarded_options({"dp=3"}), 1, damage);
  INFO(three.error);
  CHECK(contains(three.error,
                 "75 trireme: [replicas] blocks.1.mlp.up.weight on rank 1 differs from 2 copies that are "
                 "equal, on ranks 0, 2"));
  CHECK(three.steps == 2);  // found in step 3, the one after the damage
  const Ended two = run(guarded_options({"dp=2"}), 1, damage);
  CHECK_MESSAGE(contains(two.error, "blocks.1.mlp.up.weight differs between rank 0 and rank 1, and no majority"),
                two.error);
}

TEST_CASE("a change of optimizer state shows in the weights, and the weight is named") {
  const Ended ended =
      run(guarded_options({"dp=3"}), 2, [](Trainer& trainer) { state(trainer, "m", matrix).data<float>()[3] = 1.0F; });
  CHECK_MESSAGE(contains(ended.error, "blocks.1.mlp.up.weight on rank 2 differs"), ended.error);
}

namespace {

struct Flips {
  Case mesh;
  DType dtype;
  int rank;               ///< the rank whose bits are flipped
  const char* parameter;  ///< the parameter whose state they belong to
  const char* ranks;      ///< what the message must say about the ranks
  std::int64_t dp_shard = 0;
};

constexpr int each_bit = sanitized ? 7 : 1;  ///< under a sanitizer some bits suffice: it looks for other things

/// Flips each bit of one element of the parameter's weight, master weight and moments in turn, and compares copies.
/// Returns the number of flips, and a list of those that were missed or reported wrongly.
std::pair<int, std::string> missed(const Flips& f) {
  GptOptions o = guarded_options(f.mesh);
  o.precision.dtype = f.dtype;
  if (f.dp_shard > 0) o.mesh.dp_shard = f.dp_shard;
  o.batch.global_batch = 24;
  int flips = 0;
  std::string wrong;
  on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
    gradients_of_step(trainer, options, mesh);
    REQUIRE(trainer.update(3e-3, trainer.gradient_norm()));
    trainer.weights_changed();  // forgets the hashes of shards, so that only the comparison of copies can find a flip
    std::vector<StateTensor> tensors = trainer.optimizer().state();
    if (f.mesh.zero == 0)
      for (const StateTensor& w : trainer.optimizer().weights()) tensors.push_back(w);
    std::vector<std::string> names;  // the same list on all ranks, so that all make the same checks
    for (const char* prefix : {"", "optimizer.master.", "optimizer.m.", "optimizer.v."})
      names.push_back(prefix + std::string(f.parameter));
    for (const std::string& name : names) {
      const bool absent = (name == f.parameter && f.mesh.zero > 0) ||
                          (f.dtype == DType::f32 && name.find(".master.") != std::string::npos);
      if (absent) continue;
      const int bits = name == f.parameter && f.dtype != DType::f32 ? 16 : 32;
      for (int bit = 0; bit < bits; bit += each_bit) {
        std::byte* byte = nullptr;
        for (const StateTensor& t : tensors) {
          if (mesh.rank() == f.rank && t.full_name() == name)
            byte = static_cast<std::byte*>(t.value.raw()) + 3 * size_of(t.value.dtype()) + bit / 8;
        }
        if (byte != nullptr) *byte ^= std::byte{1} << (bit % 8);
        const std::string error = failure([&] { trainer.check_replicas(); });
        if (byte != nullptr) *byte ^= std::byte{1} << (bit % 8);
        if (byte == nullptr) continue;
        ++flips;
        if (!contains(error, "75 trireme: [replicas] " + name) || !contains(error, f.ranks) ||
            contains(error, " too; expected"))
          wrong += fmt::format("bit {} of {}: {}\n", bit, name, error);
      }
    }
    trainer.check_replicas();  // all bits are flipped back
  });
  return {flips, wrong};
}

}  // namespace

TEST_CASE("every bit of weights, masters and moments that another rank holds too is compared") {
  const char *norm = "blocks.1.norm1.weight", *bias = "blocks.0.mlp.down.bias";
  int flips = 0;
  for (const Flips& f :
       {Flips{{"dp=2"}, DType::f32, 1, matrix, "rank 0 and rank 1"},
        Flips{{"dp=2"}, DType::bf16, 1, matrix, "rank 0 and rank 1"},
        Flips{{"dp=2"}, DType::f16, 0, matrix, "rank 0 and rank 1"},
        Flips{{"dp=3"}, DType::bf16, 2, bias, "rank 2 differs from 2 copies that are equal, on ranks 0, 1"},
        Flips{{"tp=2"}, DType::bf16, 0, norm, "rank 0 and rank 1"},
        Flips{{"tp=2"}, DType::f32, 1, bias, "rank 0 and rank 1"},
        Flips{{"dp=2,tp=2"}, DType::bf16, 3, matrix, "rank 1 and rank 3"},
        Flips{{"pp=2"}, DType::bf16, 1, "wte.weight", "rank 0 and rank 1"},
        Flips{{"dp=1,cp=2"}, DType::bf16, 1, "wpe.weight", "rank 0 and rank 1"},
        Flips{{"dp=4,ep=2"}, DType::bf16, 3, matrix, "rank 1 and rank 3"},
        Flips{{"tp=2", 1}, DType::bf16, 1, norm, "rank 0 and rank 1"},
        Flips{{"dp=2,pp=2", 2}, DType::bf16, 3, "wte.weight", "rank 1 and rank 3"},
        Flips{{"dp=4", 1}, DType::bf16, 1, matrix, "rank 1 and rank 3", 2},
        Flips{{"dp=4", 2}, DType::f32, 3, matrix, "rank 1 and rank 3", 2},
        Flips{{"dp=4", 3}, DType::f16, 2, matrix, "rank 0 and rank 2", 2}}) {
    const auto [made, wrong] = missed(f);
    CHECK_MESSAGE(wrong.empty(), f.mesh.mesh, " zero ", f.mesh.zero, " ", name(f.dtype), ": ", wrong);
    CHECK(made >= (sanitized ? 10 : 64));
    flips += made;
  }
  CHECK(flips > (sanitized ? 180 : 1300));
}

TEST_CASE("a flipped bit of a master or a moment ends a run in bf16, although no weight shows it") {
  for (const char* kind : {"master", "m", "v"}) {
    GptOptions o = guarded_options({"dp=3"});
    o.precision.dtype = DType::bf16;
    const Ended ended = run(o, 1, [&](Trainer& trainer) {
      const Tensor flipped = state(trainer, kind, matrix);
      const auto values = flipped.span<float>();
      // The next update must not round the bit away, and the bit must not be so large that a weight is rounded the other
      // way. An update changes a master weight by up to 0.003, so take an element that stays between two powers of 2,
      // and its lowest bit. Of a moment take the largest element, to which no much larger gradient is added, and bit 8.
      const bool master = kind == std::string("master");
      std::size_t element = 0;
      while (master && (std::abs(values[element]) < 0.0195F || std::abs(values[element]) > 0.0273F)) ++element;
      if (!master)
        element = static_cast<std::size_t>(std::ranges::max_element(values, {}, [](float x) { return std::abs(x); }) -
                                           values.begin());
      std::byte* const bytes = std::as_writable_bytes(values).data() + element * sizeof(float);
      bytes[master ? 0 : 1] ^= std::byte{1};
    });
    CHECK(contains(ended.error, "75 trireme: [replicas] optimizer.m"));  // a moment's bit also shows in the master
    CHECK_MESSAGE(contains(ended.error, fmt::format("optimizer.{}.{}", kind, matrix)), ended.error);
    CHECK(contains(ended.error, "on rank 1 differs from 2 copies that are equal, on ranks 0, 2"));
    CHECK(ended.steps == 2);
  }
}

TEST_CASE("a flip that makes the next step not finite is reported as a flip") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    GptOptions o = guarded_options({"dp=3"});
    o.precision.dtype = dtype;
    o.guards.max_skipped = 1;
    const Ended ended = run(
        o, 1,
        [&](Trainer& trainer) {
          auto* byte = static_cast<std::byte*>(state(trainer, "v", matrix).raw());
          byte[3] ^= std::byte{1} << 7;  // the sign: the square root is NaN
        },
        2);
    CHECK_MESSAGE(contains(ended.error, "75 trireme: [replicas] blocks.1.mlp.up.weight on rank 1 differs"),
                  ended.error);
    CHECK(ended.steps == 2);
  }
}

TEST_CASE("a router's bias that differs is found") {
  GptOptions o = guarded_options({"dp=2,ep=2"});
  o.model.config.experts.bias_update = 0.1;
  const Ended ended = run(o, 1, [](Trainer& trainer) {
    for (const BufferPtr& b : trainer.model().buffers()) b->value.data<float>()[1] += 0.5F;
  });
  CHECK_MESSAGE(contains(ended.error, "[replicas] blocks.0.mlp.router.bias differs between rank 0 and rank 1"),
                ended.error);
}

TEST_CASE("what tp ranks and both ends of a pipeline hold counts too") {
  // All four ranks of dp=2,tp=2 hold a norm's gain, so there is a majority; with two ranks there would be none.
  const Ended norm = run(guarded_options({"dp=2,tp=2"}), 3,
                         [](Trainer& trainer) { flip_bit(weight(trainer, "blocks.0.norm1.weight"), 0); });
  CHECK_MESSAGE(
      contains(norm.error, "blocks.0.norm1.weight on rank 3 differs from 3 copies that are equal, on ranks 0, 1, 2"),
      norm.error);
  const Ended tied =
      run(guarded_options({"dp=2,pp=2"}), 2, [](Trainer& trainer) { flip_bit(weight(trainer, "wte.weight"), 9); });
  CHECK_MESSAGE(contains(tied.error, "wte.weight on rank 2 differs from 3 copies that are equal, on ranks 0, 1, 3"),
                tied.error);
  const Ended shard =
      run(guarded_options({"dp=2,tp=2"}), 1, [](Trainer& trainer) { flip_bit(weight(trainer, matrix), 7); });
  CHECK_MESSAGE(contains(shard.error, "blocks.1.mlp.up.weight at ["), shard.error);
  CHECK_MESSAGE(contains(shard.error, "differs between rank 1 and rank 3"), shard.error);
}

TEST_CASE("with ZeRO, what one rank alone has is hashed between updates") {
  struct Damage {
    Case mesh;
    DType dtype;
    const char *kind, *found;
  };
  for (const Damage& d :
       {Damage{{"dp=2", 3}, DType::f32, "", "the shard of blocks.1.mlp.up.weight"},
        Damage{{"dp=2,tp=2", 3}, DType::bf16, "", "the shard of blocks.1.mlp.up.weight"},
        Damage{{"dp=3", 3}, DType::bf16, "master", "the shard of optimizer.master.blocks.1.mlp.up.weight"},
        Damage{{"dp=2", 2}, DType::bf16, "master", "the shard of optimizer.master.blocks.1.mlp.up.weight"},
        Damage{{"dp=2,pp=2", 3}, DType::f32, "m", "the shard of optimizer.m.blocks.1.mlp.up.weight"},
        Damage{{"dp=2", 1}, DType::f32, "v", "the shard of optimizer.v.blocks.1.mlp.up.weight"}}) {
    GptOptions o = guarded_options(d.mesh);
    o.precision.dtype = d.dtype;
    o.guards.check_state = std::string(d.kind) == "m" || std::string(d.kind) == "v";
    const int rank = parse_mesh(d.mesh.mesh, 0).ranks() - 1;
    const std::string kind = d.kind;
    const Ended ended = run(o, rank, [&](Trainer& trainer) {
      flip_bit(kind.empty() ? weight(trainer, matrix) : state(trainer, kind, matrix), 11);
    });
    INFO(d.mesh.mesh, " zero ", d.mesh.zero, " ", kind, ": ", ended.error);
    CHECK(contains(ended.error, "75 trireme: [shard-hash] "));
    CHECK(contains(ended.error, d.found));
    CHECK(ended.steps == 2);
  }
}

TEST_CASE("with ZeRO 1 and 2 a rank's own part of a whole weight is hashed too") {
  GptOptions o = guarded_options({"dp=2", 2});
  const Ended ended = run(o, 1, [](Trainer& trainer) {
    const Tensor whole = weight(trainer, matrix);
    flip_bit(whole, whole.count() - 1);  // the last rows are rank 1's
  });
  CHECK_MESSAGE(contains(ended.error, "[shard-hash] the shard of blocks.1.mlp.up.weight changed in memory"),
                ended.error);
}

TEST_CASE("with ZeRO, a frozen weight that no other rank has is hashed too") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    GptOptions o = guarded_options({"pp=2", 1});
    o.precision.dtype = dtype;
    o.optimizer.freeze = "blocks.*";
    const Ended ended = run(o, 1, [](Trainer& trainer) { flip_bit(weight(trainer, matrix), 11); });
    CHECK_MESSAGE(contains(ended.error, "[shard-hash] the shard of blocks.1.mlp.up.weight changed in memory"),
                  ended.error);
  }
}

namespace {

/// Trains four steps and saves every second one. Calls `damage` after the update of step 4. Returns the error.
template <class Damage>
std::string saving_run(const TempFolder& folder, const Damage& damage) {
  GptOptions o = guarded_options({"dp=2"});
  o.run.out = folder.path();
  o.run.checkpoint_every = 2;
  o.guards.check_replicas = 1000;  // only before saves
  return failure([&] {
    on_ranks(o, [&](Trainer& trainer, const GptOptions& options, const DeviceMesh& mesh) {
      const RunIdentity identity{.seed = 7};
      Progress progress;
      EventStream events;
      Checkpointing checkpoints(options, trainer, identity, {}, events);
      Guards guards(options, trainer, &checkpoints, progress, events);
      make_steps(guards, trainer, options, progress, 4, {}, [&](bool) {
        if (progress.steps == 4) damage(trainer, mesh);
        static_cast<void>(checkpoints.after_step(progress));  // no signal comes
      });
    });
  });
}

}  // namespace

TEST_CASE("weights that differ between ranks are not saved") {
  const TempFolder folder;
  const std::string error = saving_run(folder, [](Trainer& trainer, const DeviceMesh& mesh) {
    if (mesh.rank() == 0) flip_bit(weight(trainer, matrix), 0);
  });
  CHECK_MESSAGE(contains(error, "75 trireme: [replicas] blocks.1.mlp.up.weight"), error);
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoints/step_00000004"));
}

TEST_CASE("weights that are not finite are not saved") {
  const TempFolder folder;
  const std::string error = saving_run(
      folder, [](Trainer& trainer, const DeviceMesh&) { weight(trainer, "norm.bias").data<float>()[3] = -INFINITY; });
  CHECK_MESSAGE(contains(error, "77 trireme: [train] norm.bias is not finite"), error);
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoints/step_00000004"));
}

TEST_CASE("--check-replicas 0 checks nothing") {
  GptOptions o = guarded_options({"dp=2"});
  o.guards.check_replicas = 0;
  on_ranks(o, [&](Trainer& trainer, const GptOptions&, const DeviceMesh& mesh) {
    if (mesh.rank() == 0) flip_bit(weight(trainer, matrix), 0);
    trainer.check_replicas();
  });
}
