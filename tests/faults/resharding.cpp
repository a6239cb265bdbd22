// Resharding between all pairs of meshes. What mesh A saved is loaded on mesh B, saved again, and compared bit for bit,
// as global tensors, with the checkpoint that all began with:
//
//   fault_resharding FOLDER [MESHES]
//
// FOLDER is a new folder. MESHES is how many meshes of the list are used (default: all). Ranks are threads. Prints
// counts; the exit code is 1 if any pair differs. tests/checkpoint/resharding_test.cpp also compares with the tensors
// in the memory of the ranks that saved them.
#include <cstdio>
#include <string>

#include "core/error.h"
#include "core/io.h"
#include "data/char_tokenizer.h"
#include "parallel/checkpoint/compare.h"
#include "tests/support/batches.h"
#include "train/gpt/gpt_setup.h"
#include "train/gpt/validate_gpt.h"
#include "train/launch/ranks.h"
#include "train/runs/saved_run.h"
#include "train/step/trainer.h"

namespace fs = std::filesystem;
using namespace trireme;

namespace {

struct Layout {
  const char* mesh;
  std::int64_t zero = 0;
  const char* pipeline = "1f1b";
};
constexpr Layout layouts[] = {{"dp=1"},
                              {"dp=2", 1},
                              {"pp=2", 0, "interleaved:2"},
                              {"dp=4", 3},
                              {"tp=2,pp=2"},
                              {"dp=2,tp=2", 2},
                              {"dp=3", 3},
                              {"tp=4", 0},
                              {"cp=2", 2},
                              {"pp=4", 0, "gpipe"},
                              {"dp=2,pp=2", 2, "interleaved:2"},
                              {"dp=6", 1},
                              {"dp=2,tp=2,pp=2", 1},
                              {"dp=8", 2},
                              {"dp=2,cp=2,tp=2", 3},
                              {"tp=2,pp=4", 0, "zero-bubble"}};

GptOptions options_of(const Layout& layout) {
  GptOptions o;
  o.model.config = {.layers = 4, .heads = 4, .width = 24, .context = 8, .vocab = 65};
  o.precision.dtype = DType::bf16;  // with master weights, so that every kind of tensor is stored
  o.precision.threads = 1;
  o.mesh.axes = layout.mesh;
  o.mesh.zero = layout.zero;
  o.mesh.pipeline = layout.pipeline;
  if (layout.zero == 3) o.mesh.zero_resident = 200;
  o.batch.global_batch = 48;
  o.batch.micro_batch = 2;
  resolve(o, 0);
  validate(o);
  return o;
}

RunIdentity identity() {
  std::vector<char32_t> characters;
  for (char32_t i = 0; i < 65; ++i) characters.push_back(U' ' + i);
  return {.seed = 7, .tokenizer = CharTokenizer(std::move(characters)).to_json()};
}

/// Runs f(trainer, options, mesh) on every rank.
template <class F>
void on(const Layout& layout, const F& f) {
  const GptOptions o = options_of(layout);
  run_ranks(o, [&](Rank& rank) {
    const auto mesh = std::make_shared<const DeviceMesh>(rank.world, o.mesh.shape);
    Trainer trainer(make_gpt(o, o.model.config, mesh), o);
    f(trainer, o, *mesh);
  });
}

/// Trains two steps from the initial weights, and saves.
void make_original(const fs::path& out) {
  on(layouts[0], [&](Trainer& trainer, const GptOptions& o, const DeviceMesh& mesh) {
    const BatchPlan plan = o.batch_sizes().on_rank(mesh.coord(Axis::dp));
    for (int step = 0; step < 2; ++step) {
      const auto next = [&](int i) { return testing::made_up_batch(plan.first_sample(48 * step, i), 2, 8, 65); };
      trainer.gradients(next, 1.0 / 384);
      trainer.update(1e-2, trainer.gradient_norm());
    }
    save_run(out, trainer.model(), trainer.optimizer(), {.steps = 2, .samples = 96}, identity());
  });
}

std::size_t differences(const fs::path& a, const fs::path& b) {
  checkpoint::Checkpoint first(find_saved_run(a)), second(find_saved_run(b));
  return checkpoint::compare(first, second).size();
}

int test(const fs::path& folder, std::size_t meshes) {
  make_directories(folder);
  const fs::path original = folder / "original";
  make_original(original);
  int pairs = 0, differing = 0, moved = 0;
  for (std::size_t from = 0; from < meshes; ++from) {
    const fs::path source = folder / fmt::format("from{}", from);
    const auto move = [&](std::size_t to, const fs::path& in, const fs::path& out) {
      on(layouts[to], [&](Trainer& trainer, const GptOptions&, const DeviceMesh&) {
        const Progress progress = load_run(in, trainer.model(), trainer.optimizer(), identity()).progress;
        save_run(out, trainer.model(), trainer.optimizer(), progress, identity());
      });
      const std::size_t count = differences(original, out);
      if (count > 0)
        std::printf("%s zero %d to %s zero %d: %zu tensors differ\n", layouts[from].mesh,
                    static_cast<int>(layouts[from].zero), layouts[to].mesh, static_cast<int>(layouts[to].zero), count);
      return count > 0;
    };
    moved += static_cast<int>(move(from, original, source));
    for (std::size_t to = 0; to < meshes; ++to) {
      if (to == from) continue;
      const fs::path target = folder / "target";
      differing += static_cast<int>(move(to, source, target));
      ++pairs;
      remove_folder(target);
    }
    remove_folder(source);
  }
  std::printf("meshes=%zu pairs=%d differing=%d\n", meshes, pairs, differing + moved);
  return differing + moved > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: fault_resharding FOLDER [MESHES]\n", stderr);
    return 64;
  }
  try {
    return test(argv[1],
                argc > 2 ? std::min<std::size_t>(std::stoull(argv[2]), std::size(layouts)) : std::size(layouts));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
