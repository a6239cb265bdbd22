// A vision transformer (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words") that learns to name the shape in an
// image. The task draws its own images of 16 x 16 pixels: a disc, a square, a cross or a ring, anywhere, with noise.
//
//   build/bin/train --task vit --mesh dp=2,tp=2
//   build/bin/parity --task vit --mesh pp=2 --pipeline interleaved:2 --zero 3
//
// The task comes first, then its model and its data. Read next: examples/tasks/sort.cpp, docs/writing_a_model.md.
#include <fmt/format.h>

#include <cmath>

#include "core/random.h"
#include "nn/attention.h"
#include "nn/cross_entropy.h"
#include "nn/mlp.h"
#include "train/loop/task.h"
#include "train/step/setup.h"
#include "train/validate/validate.h"

namespace trireme {
namespace {

constexpr std::int64_t side = 16, patch = 4, patches = (side / patch) * (side / patch), classes = 4;

struct VitConfig {
  std::int64_t layers = 4, heads = 4, width = 64;
};

std::unique_ptr<Model> make_vit(const nn::Build& b, const VitConfig& c, pipeline::StagePlan plan);
std::shared_ptr<const ValidationSource> make_drawings(std::uint64_t seed, std::int64_t count);

// ---- the task -------------------------------------------------------------------------------------------------------

class VitTask : public Task {
 public:
  VitTask() {
    options().batch.global_batch = 32;
    options().schedule.steps = 300;
    options().schedule.lr = 3e-3;
    options().mesh.sequence_parallel = false;  // the head averages over all patches
  }
  void declare_model(Flags& flags) override {
    flags.group("model");
    flags.add("layers", "N", config_.layers, "transformer blocks", {.low = 1, .high = 1 << 12});
    flags.add("heads", "N", config_.heads, "attention heads of a block", Range::count());
    flags.add("width", "N", config_.width, "size of the residual stream, a multiple of --heads", Range::count());
  }
  std::string name() const override { return "vit"; }
  void validate() const override {
    validate_training(options(), config_.layers);
    require_whole_sequences(options().mesh, "the head averages over all patches");
  }
  std::unique_ptr<Model> make(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) const override {
    return make_vit(make_build(o, std::move(mesh)), config_, o.mesh.stage_plan(static_cast<int>(config_.layers)));
  }
  std::shared_ptr<const DataSource> training() const override {
    return make_drawings(options().run.seed, std::int64_t{1} << 40);
  }
  std::shared_ptr<const ValidationSource> validation() const override {
    return make_drawings(options().run.seed + 1, 256);
  }
  std::int64_t targets() const override { return 1; }
  UnitNames unit_names() const override { return {"images", "labels", "images/s"}; }
  std::vector<LabelledValue> rows() const override {
    return {{"data", "images drawn as they are needed: discs, squares, crosses and rings"},
            {"model", fmt::format("vision transformer: {} layers, {} heads, width {}", config_.layers, config_.heads,
                                  config_.width)}};
  }
  std::string explain_loss(std::int64_t steps, double loss) const override {
    return steps == 0 ? fmt::format("ln({}) = {:.4f}, what guessing costs", classes, std::log(classes))
                      : fmt::format("the right class has probability {:.2f} (geometric mean)", std::exp(-loss));
  }

 private:
  VitConfig config_;
};

// ---- the model, from its parts up -----------------------------------------------------------------------------------

struct Patches : nn::Module {
  nn::Linear project;
  ParameterPtr positions;  // [P, D]
  Patches(const nn::Build& b, const VitConfig& c)
      : Module(b),
        project(b / "project", patch * patch, {c.width}, nn::Split::none, {.hidden = false}),
        positions((b / "positions").parameter("weight", {patches, c.width}, {}, nn::Init::normal(0.02), {})) {}
  Tensor forward(const Tensor& images) override {  // [B, 16, 16] -> [B, P, D]
    const std::int64_t rows = side / patch;
    const Tensor cut = transpose(reshape(images, {images.size(0), rows, patch, rows, patch}), 2, 3);
    return project(reshape(cut, {images.size(0), patches, patch * patch})) + positions->value();
  }
};

struct Block : nn::Module {
  nn::LayerNorm norm1, norm2;
  nn::Attention attention;
  nn::Mlp mlp;
  Block(const nn::Build& b, const VitConfig& c)
      : Module(b),
        norm1(b / "norm1", c.width),
        norm2(b / "norm2", c.width),
        attention(b / "attention", {.width = c.width, .heads = c.heads, .causal = false}),
        mlp(b / "mlp", {.width = c.width, .hidden = 4 * c.width}) {}
  Tensor forward(const Tensor& x) override {  // [B, P, D] -> [B, P, D]
    const Tensor h = attention.forward_add(x, norm1(x));
    return mlp.forward_add(h, norm2(h));
  }
};

struct Head : nn::Module {
  nn::LayerNorm norm;
  nn::Linear out;
  Head(const nn::Build& b, const VitConfig& c)
      : Module(b), norm(b / "norm", c.width), out(b / "out", c.width, {classes}, nn::Split::none, {.hidden = false}) {}
  Tensor forward(const Tensor& x) override { return out(mean(norm(x), 1)); }  // [B, P, D] -> [B, C]
};

class Vit : public Model {
 public:
  Vit(const nn::Build& b, const VitConfig& c, pipeline::StagePlan plan) : Model(b, std::move(plan)), config_(c) {
    if (holds_front()) patches_ = std::make_unique<Patches>(front_unit("patches"), c);
    make_blocks([&](const nn::Build& block, int) { return std::make_unique<Block>(block, c); });
    if (holds_end()) head_ = std::make_unique<Head>(end_unit("head"), c);
  }
  Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override {
    return nn::cross_entropy((*head_)(hidden), batch["labels"],
                             {.slice = {0, classes}, .smoothing = 0, .scale = scale});
  }
  Shape hidden_shape(std::int64_t samples) const override { return {samples, patches, config_.width}; }
  std::string architecture() const override { return "vit"; }
  std::string configuration() const override {
    return fmt::format(R"({{"layers": {}, "heads": {}, "width": {}}})", config_.layers, config_.heads, config_.width);
  }

 protected:
  Tensor front(const Batch& batch) override { return (*patches_)(cast_to(batch["images"], dtype())); }

 private:
  VitConfig config_;
  std::unique_ptr<Patches> patches_;
  std::unique_ptr<Head> head_;
};

std::unique_ptr<Model> make_vit(const nn::Build& b, const VitConfig& c, pipeline::StagePlan plan) {
  return std::make_unique<Vit>(b, c, std::move(plan));
}

// ---- the data -------------------------------------------------------------------------------------------------------

/// Images by number: number n is a pure function of (seed, n). Images past `count` have no label.
class Drawings : public ValidationSource {
 public:
  Drawings(std::uint64_t seed, std::int64_t count) : seed_(seed), count_(count) {}
  std::int64_t count() const override { return count_; }
  std::int64_t targets() const override { return count_; }
  Batch make_batch(std::int64_t first, std::int64_t count) const override {
    Batch batch;
    const Tensor images = Tensor::zeros({count, side, side}), labels = Tensor::empty({count}, DType::i32);
    for (std::int64_t i = 0; i < count; ++i) {
      batch.sample_ids.push_back(first + i);
      labels.data<std::int32_t>()[i] =
          first + i < count_ ? draw(first + i, images.data<float>() + i * side * side) : -1;
    }
    batch.tensors = {{"images", images}, {"labels", labels}};  // [B, 16, 16], [B]
    return batch;
  }

 private:
  /// Draws image `number` into `pixels` and returns its class.
  std::int32_t draw(std::int64_t number, float* pixels) const {
    const auto stream = static_cast<std::uint64_t>(number);
    const auto kind = static_cast<std::int32_t>(random_word(seed_, stream, 0) % classes);
    const double x0 = 5 + 6 * random_uniform(seed_, stream, 1), y0 = 5 + 6 * random_uniform(seed_, stream, 2);
    const double size = 3 + 2 * random_uniform(seed_, stream, 3);
    for (std::int64_t i = 0; i < side * side; ++i) {
      const std::int64_t row = i / side, column = i % side;
      const double x = std::abs(static_cast<double>(column) - x0), y = std::abs(static_cast<double>(row) - y0);
      const double r = std::hypot(x, y);
      const bool inside[classes] = {r < size, std::max(x, y) < 0.85 * size, std::min(x, y) < 1 && r < size,
                                    r < size && r > size - 1.5};
      pixels[i] = static_cast<float>(inside[kind] ? 1.0 : 0.0) +
                  0.2F * static_cast<float>(random_normal(seed_, stream, static_cast<std::uint64_t>(i) + 4));
    }
    return kind;
  }

  std::uint64_t seed_;
  std::int64_t count_;
};

std::shared_ptr<const ValidationSource> make_drawings(std::uint64_t seed, std::int64_t count) {
  return std::make_shared<Drawings>(seed, count);
}

}  // namespace

std::unique_ptr<Task> make_vit_task() { return std::make_unique<VitTask>(); }

}  // namespace trireme
