// Any mesh to any mesh: a checkpoint saved on one mesh is loaded on every other, with ZeRO, interleaving, experts and
// everything else changed at once. Every element of every weight, master weight and moment must have the bits it had in
// the memory of the ranks that saved it. The reference is assembled here from those ranks' tensors, element by element.
#include <mutex>

#include "tests/checkpoint/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Layout {
  std::string mesh;
  std::int64_t zero = 0;
  std::string pipeline = "1f1b";
  std::int64_t dp_shard = 0;
  std::string context_parallel = "ring";
};

const std::vector<Layout> all_layouts = {{"dp=1"},
                                         {"dp=2", 1},
                                         {"tp=2"},
                                         {"pp=2", 0, "interleaved:2"},
                                         {"cp=2", 2},
                                         {"dp=3", 3},
                                         {"dp=4,ep=4", 3},
                                         {"dp=2,cp=2,ep=2", 2},
                                         {"dp=4", 3, "1f1b", 2},
                                         {"tp=4,pp=2", 0, "zero-bubble"},
                                         {"dp=2,pp=2,ep=2", 3, "interleaved:2"},
                                         {"dp=2,tp=2,pp=2,ep=2", 1},
                                         {"dp=8,ep=2", 3},
                                         {"pp=4", 0, "gpipe"}};

GptOptions options_of(const Layout& layout, DType dtype) {
  GptOptions o;
  o.model.config = {.layers = 4, .heads = 4, .width = 24, .context = 8, .vocab = test_vocab};
  o.model.config.experts = {.count = 4, .top_k = 2, .shared = 1};
  o.mesh.axes = layout.mesh;
  o.mesh.zero = layout.zero;
  o.mesh.pipeline = layout.pipeline;
  if (layout.zero == 3) o.mesh.zero_resident = 200;
  if (layout.dp_shard > 0) o.mesh.dp_shard = layout.dp_shard;
  o.batch.global_batch = 24;
  o.batch.micro_batch = 3;
  if (layout.mesh == "dp=3") o.batch.micro_batch = 2;
  o.precision.dtype = dtype;
  resolve(o, 0);
  validate(o);
  return o;
}

struct Whole {
  Shape shape;
  DType dtype = DType::f32;
  std::string bytes;   // row-major
  std::string set_by;  // per element: 1 if a rank holds it
};
using Wholes = std::map<std::string, Whole>;

/// Global tensors from the ranks' parts, which must agree where they overlap.
class Assembly {
 public:
  void add(const std::string& name, const StateTensor& part) {
    const Parameter& p = *part.parameter;
    const Tensor dense = contiguous(part.value);
    const Shape start = part.rectangle().start, local = dense.shape();
    const auto size = size_of(dense.dtype());
    const std::scoped_lock lock(mutex_);
    Whole& whole = wholes_[name];
    if (whole.bytes.empty()) {
      whole.shape = p.global_shape.with(0, p.logical_rows);
      whole.dtype = dense.dtype();
      whole.bytes.resize(static_cast<std::size_t>(whole.shape.count()) * size);
      whole.set_by.resize(static_cast<std::size_t>(whole.shape.count()));
    }
    const auto* from = static_cast<const char*>(dense.raw());
    for (std::int64_t i = 0; i < dense.count(); ++i) {
      std::int64_t rest = i, at = 0, stride = 1;
      bool padding = false;
      for (int dim = local.dims() - 1; dim >= 0; --dim) {
        const std::int64_t place = start[dim] + rest % local[dim];
        padding = padding || place >= whole.shape[dim];
        at += place * stride;
        stride *= whole.shape[dim];
        rest /= local[dim];
      }
      if (padding) continue;
      char* to = whole.bytes.data() + static_cast<std::size_t>(at) * size;
      const char* element = from + static_cast<std::size_t>(i) * size;
      char& seen = whole.set_by[static_cast<std::size_t>(at)];
      if (seen != 0 && std::memcmp(to, element, size) != 0) ++disagreements;
      std::memcpy(to, element, size);
      seen = 1;
    }
  }
  void add_all(optim::Optimizer& optimizer) {
    for (const StateTensor& s : optimizer.weights()) add(s.parameter->name, s);
    for (const StateTensor& s : optimizer.state()) add("optimizer." + s.name + "." + s.parameter->name, s);
  }
  const Wholes& wholes() const { return wholes_; }
  int disagreements = 0;

 private:
  std::mutex mutex_;
  Wholes wholes_;
};

/// How many tensors differ in shape or in any bit, or have elements that no rank holds; -1 if the numbers of tensors
/// differ.
int differing(const Wholes& a, const Wholes& b) {
  if (a.size() != b.size()) return -1;
  int count = 0;
  for (const auto& [name, whole] : a) {
    const auto other = b.find(name);
    const bool complete = whole.set_by.find('\0') == std::string::npos;
    if (other == b.end() || !complete || other->second.bytes != whole.bytes || !(other->second.shape == whole.shape))
      ++count;
  }
  return count;
}

/// Whether mesh `to` loads the checkpoint of mesh `from`. Under a sanitizer each mesh loads its own and those of two
/// others only: every pair runs the same code.
bool tried(std::size_t from, std::size_t to, std::size_t count) {
  return !sanitized || from == to || from == (to + 1) % count || from == (to + count / 2) % count;
}

}  // namespace

TEST_CASE("every mesh loads what every other saved, bit for bit as global tensors") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    std::vector<Layout> layouts = all_layouts;
    if (dtype == DType::f32) layouts.resize(sanitized ? 3 : 5);  // f32 differs only in that it has no master weights
    if (dtype == DType::bf16 && sanitized) layouts.resize(7);
    const TempFolder folder;
    std::vector<std::unique_ptr<Assembly>> saved;
    for (const Layout& layout : layouts) {
      saved.push_back(std::make_unique<Assembly>());
      const GptOptions o = options_of(layout, dtype);
      run_mesh(layout.mesh, [&](const MeshPtr& mesh) {
        GptRun run(o, mesh);
        run.steps(static_cast<int>(saved.size()) % 2 + 1);
        saved.back()->add_all(run.trainer.optimizer());
        run.save(folder / std::to_string(saved.size() - 1));
      });
      CHECK(saved.back()->disagreements == 0);
      CHECK(differing(saved.back()->wholes(), saved.back()->wholes()) == 0);  // no element is missing
    }
    for (std::size_t to = 0; to < layouts.size(); ++to) {
      const Layout& layout = layouts[to];
      const GptOptions o = options_of(layout, dtype);
      std::vector<Assembly> loaded(layouts.size());
      run_mesh(layout.mesh, [&](const MeshPtr& mesh) {
        GptRun run(o, mesh);
        for (std::size_t from = 0; from < layouts.size(); ++from) {
          if (!tried(from, to, layouts.size())) continue;
          scramble(run.trainer);
          run.load(folder / std::to_string(from));
          CHECK(run.progress.steps == static_cast<std::int64_t>((from + 1) % 2 + 1));
          CHECK(run.progress.samples == 24 * run.progress.steps);
          CHECK(run.trainer.optimizer().steps() == run.progress.steps);
          loaded[from].add_all(run.trainer.optimizer());
        }
      });
      for (std::size_t from = 0; from < layouts.size(); ++from) {
        if (!tried(from, to, layouts.size())) continue;
        INFO(layouts[from].mesh, " zero ", layouts[from].zero, " to ", layout.mesh, " zero ", layout.zero, " in ",
             name(dtype));
        CHECK(loaded[from].disagreements == 0);
        CHECK(differing(loaded[from].wholes(), saved[from]->wholes()) == 0);
      }
    }
  }
}

TEST_CASE("a run goes on bit for bit where it was saved, with experts, ZeRO and interleaving") {
  for (const Layout& layout : {all_layouts[6], all_layouts[10], all_layouts[11]}) {
    const GptOptions o = options_of(layout, DType::bf16);
    const TempFolder folder;
    Assembly straight, parts;
    run_mesh(layout.mesh, [&](const MeshPtr& mesh) {
      GptRun whole(o, mesh);
      whole.steps(4);
      straight.add_all(whole.trainer.optimizer());
      {
        GptRun first(o, mesh);
        first.steps(2);
        first.save(folder.path());
      }
      GptRun second(o, mesh);
      scramble(second.trainer);
      second.load(folder.path());
      second.steps(2);
      parts.add_all(second.trainer.optimizer());
    });
    CHECK_MESSAGE(differing(straight.wholes(), parts.wholes()) == 0, layout.mesh);
  }
}

TEST_CASE("buffers of layers are saved and loaded with the weights") {
  const TempFolder folder;
  const auto make = [](const MeshPtr& mesh, double value) {
    const nn::Build build(mesh, DType::f32, 1);
    (build / "layer").parameter("weight", {4, 6}, {.tp = placement::S(0)}, nn::Init::normal(value));
    const BufferPtr whole = (build / "layer").buffer("counts", {5}, {}, 0, DType::i64);
    const BufferPtr cut = (build / "layer").buffer("bias", {8}, {.tp = placement::S(0)}, value);
    for (std::int64_t i = 0; i < 5; ++i) whole->value.data<std::int64_t>()[i] = static_cast<std::int64_t>(value) * i;
    for (std::int64_t i = 0; i < cut->value.count(); ++i)
      cut->value.data<float>()[i] = static_cast<float>(value * static_cast<double>(cut->rectangle.start[0] + i));
    return build;
  };
  run_mesh("dp=2,tp=2", [&](const MeshPtr& mesh) {
    const nn::Build build = make(mesh, 3);
    checkpoint::Saver saver(folder.path(), *mesh, {});
    saver.begin(1, checkpoint::held_tensors(whole_weights(build.parameters()), build.buffers(), *mesh), {});
    CHECK(saver.finish()->error.empty());
  });
  run_mesh("tp=4", [&](const MeshPtr& mesh) {
    const nn::Build build = make(mesh, 0);
    checkpoint::Checkpoint(folder / "step_00000001")
        .read(checkpoint::held_tensors(whole_weights(build.parameters()), build.buffers(), *mesh), "");
    const Buffer &whole = *build.buffers()[0], &cut = *build.buffers()[1];
    CHECK(whole.name == "layer.counts");
    for (std::int64_t i = 0; i < 5; ++i) CHECK(whole.value.data<std::int64_t>()[i] == 3 * i);
    for (std::int64_t i = 0; i < 2; ++i)
      CHECK(cut.value.data<float>()[i] == static_cast<float>(3 * (2 * mesh->coord(Axis::tp) + i)));
  });
}
