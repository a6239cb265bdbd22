// An encoder-decoder transformer (Vaswani et al. 2017) that learns to sort digits: "3 1 2" -> "1 2 3". The task
// generates its own strings.
//
//   build/bin/train --task sort --mesh dp=2,pp=2
//   build/bin/parity --task sort --mesh dp=2,tp=2 --zero 3 --recompute full
//
// One tensor [B, 2 L, D] goes through all blocks and pipeline stages: the source is its first half, the target its
// second half. Encoder blocks change the first half and pass on the second; decoder blocks do the opposite. So a stage
// may begin anywhere, also between encoder and decoder.
//
// The task comes first, then its model and its data. Read next: docs/writing_a_model.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "nn/attention.h"
#include "nn/cross_entropy.h"
#include "nn/mlp.h"
#include "nn/vocab_embedding.h"
#include "train/loop/task.h"
#include "train/step/setup.h"
#include "train/validate/validate.h"

namespace trireme {
namespace {

constexpr std::int64_t digits = 10, begin_token = digits;  // the decoder's input before the first sorted digit

struct SortConfig {
  std::int64_t layers = 2, heads = 4, width = 64, length = 12;
  int blocks() const { return static_cast<int>(2 * layers); }
};

std::unique_ptr<Model> make_sorter(const nn::Build& b, const SortConfig& c, pipeline::StagePlan plan);
std::shared_ptr<const ValidationSource> make_strings(std::uint64_t seed, std::int64_t length, std::int64_t count);

// ---- the task -------------------------------------------------------------------------------------------------------

class SortTask : public Task {
 public:
  SortTask() {
    options().batch.global_batch = 32;
    options().schedule.steps = 300;
    options().schedule.lr = 3e-3;
    options().mesh.sequence_parallel = false;  // blocks split the sequence themselves
  }
  void declare_model(Flags& flags) override {
    flags.group("model");
    flags.add("layers", "N", config_.layers, "blocks of the encoder, and as many of the decoder",
              {.low = 1, .high = 1 << 12});
    flags.add("heads", "N", config_.heads, "attention heads of a block", Range::count());
    flags.add("width", "N", config_.width, "size of the residual stream, a multiple of --heads", Range::count());
    flags.add("length", "N", config_.length, "digits of a string", Range::count());
  }
  std::string name() const override { return "sort"; }
  void validate() const override {
    validate_training(options(), config_.blocks());
    require_whole_sequences(options().mesh, "blocks cut the sequence themselves");
  }
  std::unique_ptr<Model> make(const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) const override {
    return make_sorter(make_build(o, std::move(mesh)), config_, o.mesh.stage_plan(config_.blocks()));
  }
  std::shared_ptr<const DataSource> training() const override {
    return make_strings(options().run.seed, config_.length, std::int64_t{1} << 40);
  }
  std::shared_ptr<const ValidationSource> validation() const override {
    return make_strings(options().run.seed + 1, config_.length, 256);
  }
  std::int64_t targets() const override { return config_.length; }
  UnitNames unit_names() const override { return {"strings", "digits", "digits/s"}; }
  std::vector<LabelledValue> rows() const override {
    return {{"data", fmt::format("strings of {} digits, made as they are needed", config_.length)},
            {"model", fmt::format("encoder and decoder of {} layers each, {} heads, width {}", config_.layers,
                                  config_.heads, config_.width)}};
  }
  std::string explain_loss(std::int64_t steps, double loss) const override {
    return steps == 0 ? fmt::format("ln({}) = {:.4f}, what guessing costs", digits, std::log(digits))
                      : fmt::format("the right digit has probability {:.2f} (geometric mean)", std::exp(-loss));
  }

 private:
  SortConfig config_;
};

// ---- the model, from its parts up -----------------------------------------------------------------------------------

Tensor source_of(const Tensor& x) { return slice(x, 1, 0, x.size(1) / 2); }              // [B, 2 L, D] -> [B, L, D]
Tensor target_of(const Tensor& x) { return slice(x, 1, x.size(1) / 2, x.size(1) / 2); }  // the same

/// Attention of the target to the source, heads split over tp as in nn::Attention.
struct CrossAttention : nn::Module {
  std::int64_t heads, head_width;  // on this rank
  nn::Linear q, k, v, proj;
  CrossAttention(const nn::Build& b, const SortConfig& c)
      : Module(b),
        heads(c.heads / b.mesh().size(Axis::tp)),
        head_width(c.width / c.heads),
        q(b / "q", c.width, {c.width}, nn::Split::out, {}),
        k(b / "k", c.width, {c.width}, nn::Split::out, {.bias = false}),
        v(b / "v", c.width, {c.width}, nn::Split::out, {}),
        proj(b / "proj", c.width, {c.width}, nn::Split::in, {}) {}
  Tensor forward(const Tensor& x) override {  // [B, 2 L, D] -> [B, L, D]
    const Tensor source = source_of(x);
    const auto in_heads = [&](const Tensor& y) { return reshape(y, {y.size(0), y.size(1), heads, head_width}); };
    const Tensor mixed = trireme::attention(in_heads(q(target_of(x))), in_heads(k(source)), in_heads(v(source)), false);
    return proj(reshape(mixed, {mixed.size(0), mixed.size(1), heads * head_width}));  // [B, L, H/tp, Dh] -> [B, L, D]
  }
};

struct EncoderBlock : nn::Module {
  nn::LayerNorm norm1, norm2;
  nn::Attention attention;
  nn::Mlp mlp;
  EncoderBlock(const nn::Build& b, const SortConfig& c)
      : Module(b),
        norm1(b / "norm1", c.width),
        norm2(b / "norm2", c.width),
        attention(b / "attention", {.width = c.width, .heads = c.heads, .causal = false}),
        mlp(b / "mlp", {.width = c.width, .hidden = 4 * c.width}) {}
  Tensor forward(const Tensor& x) override {  // [B, 2 L, D] -> [B, 2 L, D]
    const Tensor source = source_of(x), h = attention.forward_add(source, norm1(source));
    return concat({mlp.forward_add(h, norm2(h)), target_of(x)}, 1);
  }
};

struct DecoderBlock : nn::Module {
  nn::LayerNorm norm1, norm2, norm3;
  nn::Attention attention;
  CrossAttention cross;
  nn::Mlp mlp;
  DecoderBlock(const nn::Build& b, const SortConfig& c)
      : Module(b),
        norm1(b / "norm1", c.width),
        norm2(b / "norm2", c.width),
        norm3(b / "norm3", c.width),
        attention(b / "attention", {.width = c.width, .heads = c.heads}),
        cross(b / "cross", c),
        mlp(b / "mlp", {.width = c.width, .hidden = 4 * c.width}) {}
  Tensor forward(const Tensor& x) override {  // [B, 2 L, D] -> [B, 2 L, D]
    const Tensor source = source_of(x), target = target_of(x);
    const Tensor h = attention.forward_add(target, norm1(target));
    const Tensor g = h + cross(concat({source, norm2(h)}, 1));
    return concat({source, mlp.forward_add(g, norm3(g))}, 1);
  }
};

struct Embedding : nn::Module {
  nn::VocabEmbedding tokens;
  ParameterPtr positions;  // [2 L, D]
  Embedding(const nn::Build& b, const SortConfig& c)
      : Module(b),
        tokens(b / "tokens", digits + 1, c.width, 0.02, false),
        positions((b / "positions").parameter("weight", {2 * c.length, c.width}, {}, nn::Init::normal(0.02), {})) {}
  Tensor forward(const Tensor& ids) override { return tokens(ids) + positions->value(); }  // [B, 2 L] -> [B, 2 L, D]
};

struct Head : nn::Module {
  nn::LayerNorm norm;
  nn::Linear out;
  Head(const nn::Build& b, const SortConfig& c)
      : Module(b), norm(b / "norm", c.width), out(b / "out", c.width, {digits}, nn::Split::none, {.hidden = false}) {}
  Tensor forward(const Tensor& x) override { return out(norm(target_of(x))); }  // [B, 2 L, D] -> [B, L, 10]
};

class Sorter : public Model {
 public:
  Sorter(const nn::Build& b, const SortConfig& c, pipeline::StagePlan plan) : Model(b, std::move(plan)), config_(c) {
    if (holds_front()) embedding_ = std::make_unique<Embedding>(front_unit("embedding"), c);
    make_blocks([&](const nn::Build& block, int index) -> std::unique_ptr<nn::Module> {
      if (index < c.layers) return std::make_unique<EncoderBlock>(block, c);
      return std::make_unique<DecoderBlock>(block, c);
    });
    if (holds_end()) head_ = std::make_unique<Head>(end_unit("head"), c);
  }
  Tensor loss(const Tensor& hidden, const Batch& batch, double scale) override {
    return nn::cross_entropy((*head_)(hidden), batch["sorted"], {.slice = {0, digits}, .smoothing = 0, .scale = scale});
  }
  Shape hidden_shape(std::int64_t samples) const override { return {samples, 2 * config_.length, config_.width}; }
  std::string architecture() const override { return "sorter"; }
  std::string configuration() const override {
    return fmt::format(R"({{"layers": {}, "heads": {}, "width": {}, "length": {}}})", config_.layers, config_.heads,
                       config_.width, config_.length);
  }

 protected:
  Tensor front(const Batch& batch) override { return (*embedding_)(batch["read"]); }

 private:
  SortConfig config_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<Head> head_;
};

std::unique_ptr<Model> make_sorter(const nn::Build& b, const SortConfig& c, pipeline::StagePlan plan) {
  return std::make_unique<Sorter>(b, c, std::move(plan));
}

// ---- the data -------------------------------------------------------------------------------------------------------

/// Strings by number: number n is a pure function of (seed, n). Strings past `count` have no targets.
class Strings : public ValidationSource {
 public:
  Strings(std::uint64_t seed, std::int64_t length, std::int64_t count) : seed_(seed), length_(length), count_(count) {}
  std::int64_t count() const override { return count_; }
  std::int64_t targets() const override { return count_ * length_; }
  Batch make_batch(std::int64_t first, std::int64_t count) const override {
    Batch batch;
    const Tensor read = Tensor::empty({count, 2 * length_}, DType::i32),
                 sorted = Tensor::empty({count, length_}, DType::i32);
    for (std::int64_t i = 0; i < count; ++i) {
      batch.sample_ids.push_back(first + i);
      std::int32_t *in = read.data<std::int32_t>() + i * 2 * length_, *out = sorted.data<std::int32_t>() + i * length_;
      for (std::int64_t t = 0; t < length_; ++t)
        in[t] = static_cast<std::int32_t>(
            random_word(seed_, static_cast<std::uint64_t>(first + i), static_cast<std::uint64_t>(t)) % digits);
      std::copy(in, in + length_, out);
      std::sort(out, out + length_);
      in[length_] = begin_token;
      std::copy(out, out + length_ - 1, in + length_ + 1);
      if (first + i >= count_) std::fill(out, out + length_, -1);
    }
    batch.tensors = {{"read", read}, {"sorted", sorted}};  // [B, 2 L], [B, L]
    return batch;
  }

 private:
  std::uint64_t seed_;
  std::int64_t length_, count_;
};

std::shared_ptr<const ValidationSource> make_strings(std::uint64_t seed, std::int64_t length, std::int64_t count) {
  return std::make_shared<Strings>(seed, length, count);
}

}  // namespace

std::unique_ptr<Task> make_sort_task() { return std::make_unique<SortTask>(); }

}  // namespace trireme
