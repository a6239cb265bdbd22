// The code of the guides docs/custom_operations.md, docs/freezing.md, docs/foreign_weights.md and docs/threads.md, run.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <thread>

#include "autograd/engine.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "core/cores.h"
#include "core/memory.h"
#include "core/parallel_for.h"
#include "data/safetensors.h"
#include "nn/linear.h"
#include "nn/lora.h"
#include "nn/mlp.h"
#include "nn/weights.h"
#include "optim/optimizer.h"
#include "tests/support/files.h"
#include "tests/support/mesh.h"

using namespace trireme;

namespace guides {

// ---- custom_operations.md -------------------------------------------------------------------------------------------

/// sqrt(x^2 + c^2) - c, made of other operations: autograd knows the gradient.
Tensor pseudo_huber(const Tensor& x, double c) { return sqrt(square(x) + c * c) - c; }

/// The same as one operation with one pass over memory. y = sqrt(x^2 + c^2) - c;  dx = x / (y + c) dy
struct PseudoHuber : Op {
  static constexpr const char* name = "pseudo_huber";
  double c = 1;  // an attribute
  Tensor x, y;   // what backward needs

  Tensor forward(const Tensor& input) {
    x = contiguous(input);
    y = Tensor::empty(x.shape(), x.dtype());
    visit_floating(x.dtype(), name, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = std::as_const(x).data<T>();
      T* to = y.data<T>();
      parallel_for(x.count(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {  // on this rank's threads
        for (std::int64_t i = begin; i < end; ++i) {
          const double value = static_cast<double>(static_cast<accumulate_t<T>>(from[i]));
          to[i] = T(static_cast<accumulate_t<T>>(std::sqrt(value * value + c * c) - c));
        }
      });
    });
    return y;
  }
  Gradients backward(const Tensor& dy) { return {x / (y + c) * dy}; }
};

Tensor pseudo_huber_fused(const Tensor& x, double c) {
  require(c > 0, "pseudo_huber", "expected c above 0, got {}", c);
  require_one_device("pseudo_huber", {&x});
  require(x.device() == Device::cpu, "pseudo_huber", "expected a tensor on the CPU, got one on {}", name(x.device()));
  PseudoHuber op;
  op.c = c;
  return apply(std::move(op), x);
}

/// y = a b, with the gradients that are asked for.
struct Product : Op {
  static constexpr const char* name = "product";
  Tensor a, b;
  Tensor forward(const Tensor& first, const Tensor& second) { return (a = first) * (b = second); }
  Gradients backward(const Tensor& dy) {
    return {needs(0) ? dy * b : Tensor(), needs(1) ? dy * a : Tensor()};  // one for each input, in order
  }
};

/// The largest difference between the gradient of f at x and (f(x + e) - f(x - e)) / 2e. x is f64.
double gradient_error(const std::function<Tensor(const Tensor&)>& f, Tensor x) {
  require_grad(x);
  backward(sum(f(x)));
  const Tensor gradient = grad(x);
  const NoGrad guard;
  double worst = 0;
  for (double& value : x.span<double>()) {
    const double before = value, e = 1e-6;
    value = before + e;
    const double above = sum(f(x)).item();
    value = before - e;
    const double below = sum(f(x)).item();
    value = before;
    const std::int64_t i = &value - x.data<double>();
    worst = std::max(worst, std::abs((above - below) / (2 * e) - gradient.data<const double>()[i]));
  }
  return worst;
}

TEST_CASE("guides: an operation of one's own") {
  const Tensor x = Tensor::randn({3, 5}, 1, 0, DType::f64);
  CHECK(gradient_error([](const Tensor& v) { return pseudo_huber_fused(v, 0.5); }, clone(x)) < 1e-8);
  CHECK(gradient_error([](const Tensor& v) { return pseudo_huber(v, 0.5); }, clone(x)) < 1e-8);
  CHECK(gradient_error([&](const Tensor& v) { return apply(Product{}, v, square(v)); }, clone(x)) < 1e-8);
  const Tensor rows = transpose(x, 0, 1);
  CHECK(sum(square(pseudo_huber_fused(rows, 0.5) - pseudo_huber(rows, 0.5))).item() < 1e-28);
  CHECK(pseudo_huber_fused(cast(x, DType::bf16), 0.5).dtype() == DType::bf16);
  CHECK_THROWS_WITH_AS(pseudo_huber_fused(x, 0), "trireme: [pseudo_huber] expected c above 0, got 0", Error);
}

// ---- freezing.md ----------------------------------------------------------------------------------------------------

struct Classifier : nn::Module {
  nn::Mlp backbone;
  nn::LayerNorm norm;
  nn::Linear head;
  explicit Classifier(const nn::Build& b)
      : Module(b),
        backbone(b / "backbone", {.width = 8, .hidden = 32}),
        norm(b / "norm", 8),
        head(b / "head", 8, {3}, nn::Split::none, {}) {}
  Tensor forward(const Tensor& x) override { return head(norm(backbone(x))); }  // [.., 8] -> [.., 3]
};

/// A low-rank update beside a frozen layer: y = base(x) + up(down(x)) (Hu et al. 2022, "LoRA").
nn::Build one_rank() { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f32, /*seed=*/7}; }

TEST_CASE("guides: freezing") {
  const nn::Build b = one_rank();
  Classifier model(b / "model");
  nn::freeze(model.backbone);
  set_requires_grad(matching(model.parameters(), "model.norm.*"), false);
  for (const ParameterPtr& p : trained(model.parameters())) fmt::print("{}\n", p->name);
  CHECK(trained(model.parameters()).size() == 2);

  const auto optimizer = optim::make_adamw(model.parameters(), {.weight_decay = 0.1});  // no state for frozen ones
  const Tensor before = clone(model.parameter("backbone.up.weight")->local);
  nn::zero_grad(model);
  backward(sum(square(model(Tensor::randn({4, 8}, 1)))));
  optimizer->step(1e-3, 1.0);
  CHECK(testing::same_bits(before, model.parameter("backbone.up.weight")->local));

  {
    nn::unfreeze(model.backbone);  // from here on everything but the norm is trained
    const auto second = optim::make_adamw(model.parameters(), {.weight_decay = 0.1});
    second->set_factors({"lr", "model.backbone.*=0.1,model.head.weight=2"}, {"weight decay", "model.head.*=0"});
    CHECK(trained(model.parameters()).size() == 6);
  }
  const Classifier plain(b / "adapted");
  Classifier adapted(one_rank().with_lora({.rank = 2, .alpha = 4, .targets = "*.head,*.backbone.up"}) / "adapted");
  nn::train_adapters_only(adapted.parameters());  // before GradSync and the optimizer are made
  for (const ParameterPtr& p : trained(adapted.parameters())) fmt::print("{} {}\n", p->name, p->global_shape);
  CHECK(trained(adapted.parameters()).size() == 4);
  CHECK(testing::same_bits(adapted.parameter("head.weight")->local, plain.parameter("head.weight")->local));
}

// ---- foreign_weights.md ---------------------------------------------------------------------------------------------

/// Fills a parameter from a tensor of a file of another program: the part of it that this rank holds.
void load_transposed(const Parameter& p, const SafetensorsFile& file, const std::string& name) {
  Tensor whole = view::transpose(file.read(name), 0, 1);  // the file has [in, out]
  require(whole.shape() == p.global_shape, "load", "{} is {} in the file, transposed; expected {}", name, whole.shape(),
          p.global_shape);
  for (int dim = 0; dim < whole.dims(); ++dim)
    whole = view::slice(whole, dim, p.rectangle.start[dim], p.local.size(dim));
  Tensor to = p.local.detach();
  copy(whole, to);  // converts the dtype
}

TEST_CASE("guides: weights of other programs") {
  const testing::TempFolder folder;
  const std::filesystem::path path = folder / "theirs.safetensors";
  const Tensor c_fc = Tensor::randn({8, 32}, 1), bias = Tensor::randn({32}, 2), gain = Tensor::randn({8}, 3);
  SafetensorsWriter writer(path,
                           {{"h.0.mlp.c_fc.weight", DType::f32, {8, 32}},
                            {"h.0.mlp.c_fc.bias", DType::f32, {32}},
                            {"h.0.ln.weight", DType::f32, {8}}},
                           {});
  for (const Tensor& x : {c_fc, bias, gain}) writer.write(x);
  writer.commit();

  testing::run_mesh("tp=2", [&](const testing::MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 7);
    Classifier model(b / "model");
    const nn::LoadReport report = nn::load_weights(
        model.backbone, path,
        {.strict = false, .prefix = "h.0.mlp.", .name_in_file = [](const std::string& name) -> std::string {
           if (name == "up.bias") return "c_fc.bias";
           return name == "up.weight" ? "" : name;  // "": not from the file
         }});
    for (const std::string& name : report.missing) fmt::print("not in the file: {}\n", name);
    for (const std::string& name : report.extra) fmt::print("in the file, and not used: {}\n", name);
    load_transposed(*model.parameter("backbone.up.weight"), SafetensorsFile(path), "h.0.mlp.c_fc.weight");

    CHECK(report.loaded == std::vector<std::string>{"c_fc.bias"});
    const Parameter& p = *model.parameter("backbone.up.weight");  // [32, 8], S(0): half of the rows here
    const Tensor mine = view::slice(view::transpose(c_fc, 0, 1), 0, 16 * mesh->coord(Axis::tp), 16);
    CHECK(testing::same_bits(clone(mine), clone(p.local.detach())));
  });
}

// ---- threads.md -----------------------------------------------------------------------------------------------------

TEST_CASE("guides: threads") {
  double total = 0;
  std::thread worker([&] {
    set_threads(2);  // of this thread's operations; without it, all cores
    const OwnCores cores(0, 2);
    const NoGrad guard;
    total = sum(matmul(Tensor::ones({64, 64}), Tensor::ones({64, 64}))).item();
  });
  worker.join();
  CHECK(total == 64.0 * 64 * 64);

  const std::shared_ptr<MemoryPool> pool = MemoryPool::current();
  Tensor made;
  std::thread helper([&] {
    MemoryPool::set_current(pool);  // tensors of this thread count for, and come from, the rank's pool
    use_all_cores();                // not only those of the rank's threads
    made = Tensor::ones({4});
  });
  helper.join();
  CHECK(sum(made).item() == 4);
}

}  // namespace guides
