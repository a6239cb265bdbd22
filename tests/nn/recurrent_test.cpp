// LSTM and GRU against PyTorch (tests/golden/make_recurrent.py): outputs, last states and all gradients; a sequence in
// two parts; dropout between layers; meshes; what is refused.
#include "nn/recurrent.h"

#include <limits>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace recurrent_test {
namespace {

constexpr std::int64_t batch = 3, length = 5, width = 4, hidden = 7;

nn::Build one_rank(DType dtype) { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, 1}; }

nn::RecurrentOptions options_of(const std::string& name) {
  nn::RecurrentOptions o{.input = width, .hidden = hidden};
  if (name != "lstm" && name != "gru") o.layers = 2;
  o.bidirectional = name.ends_with("_deep");
  o.bias = !name.ends_with("_plain");
  return o;
}

struct Results {
  Tensor y, h, c;
};

Results run(nn::RecurrentLayers& layers, const Tensor& x, const Tensor& h, const Tensor& c,
            const Tensor& lengths = {}) {
  if (auto* lstm = dynamic_cast<nn::Lstm*>(&layers)) {
    const nn::LstmOutput out = lstm->run(x, {h, c}, lengths);
    return {out.output, out.state.h, out.state.c};
  }
  const nn::GruOutput out = dynamic_cast<nn::Gru&>(layers).run(x, h, lengths);
  return {out.output, out.state, {}};
}

std::unique_ptr<nn::RecurrentLayers> make(const nn::Build& b, const std::string& name, const nn::RecurrentOptions& o) {
  if (name.starts_with("lstm")) return std::make_unique<nn::Lstm>(b, o);
  return std::make_unique<nn::Gru>(b, o);
}

void set_weights(const nn::Build& b, const GoldenFile& file, const std::string& name) {
  for (const ParameterPtr& p : b.parameters()) set_whole(*p, file.read(name + ".weights." + p->name));
}

/// NaN beyond the lengths 3, 5 and 1 of x [B, T, in].
void masked_nan(Tensor& x) {
  for (const auto& [row, own] : {std::pair{0, 3}, {2, 1}})
    for (std::int64_t i = own * width; i < length * width; ++i)
      x.data<double>()[row * length * width + i] = std::numeric_limits<double>::quiet_NaN();
}

/// The sum of a result times its weights.
Tensor weighted(const GoldenFile& file, const std::string& name, const Tensor& result) {
  return sum(result * file.read(name, result.dtype()));
}

/// With batch_first = false, x [T, B, in] and y [T, B, H] are views of what the file has.
void check_case(const GoldenFile& file, const std::string& name, DType dtype, bool batch_first,
                const Tensor& lengths = {}) {
  CAPTURE(name);
  CAPTURE(batch_first);
  const nn::Build b = one_rank(dtype);
  nn::RecurrentOptions o = options_of(name);
  o.batch_first = batch_first;
  const auto layers = make(b, name, o);
  set_weights(b, file, name);
  const auto input = [&](const char* what) {
    Tensor x = file.read(name + what, dtype);
    require_grad(x);
    return x;
  };
  const bool has_cell = file.has(name + ".c0");
  const Tensor x = input(".x"), h0 = input(".h0"), c0 = has_cell ? input(".c0") : Tensor();
  Results out = run(*layers, batch_first ? x : transpose(x, 0, 1), h0, c0, lengths);
  if (!batch_first) out.y = transpose(out.y, 0, 1);
  check_golden(file, name + ".y", out.y);
  check_golden(file, name + ".h", out.h);
  Tensor loss = weighted(file, name + ".wy", out.y) + weighted(file, name + ".wh", out.h);
  if (has_cell) {
    check_golden(file, name + ".c", out.c);
    loss = loss + weighted(file, name + ".wc", out.c);
  }
  backward(loss);
  check_golden(file, name + ".dx", grad(x));
  check_golden(file, name + ".dh0", grad(h0));
  if (has_cell) check_golden(file, name + ".dc0", grad(c0));
  for (const ParameterPtr& p : b.parameters()) check_golden(file, name + ".grads." + p->name, p->grad());
}

}  // namespace

TEST_CASE("an LSTM and a GRU are PyTorch's: outputs, last states, and every gradient") {
  const GoldenFile file("recurrent");
  for (const std::string name : {"lstm", "lstm_deep", "lstm_plain", "gru", "gru_deep", "gru_plain"}) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      for (const bool batch_first : {true, false}) check_case(file, name, dtype, batch_first);
    }
  }
}

TEST_CASE("with lengths, an LSTM and a GRU are PyTorch's of packed sequences, with every gradient") {
  const GoldenFile file("packed");
  for (const std::string name : {"lstm", "lstm_deep", "lstm_plain", "gru", "gru_deep", "gru_plain"})
    for (const DType dtype : {DType::f64, DType::f32})
      for (const bool batch_first : {true, false})
        check_case(file, name, dtype, batch_first, Tensor::from({3, 5, 1}, DType::i32));
}

TEST_CASE("what lies beyond the lengths counts for nothing, and wrong lengths are refused") {
  for (const std::string name : {"lstm_deep", "gru_deep"}) {
    const auto gradients = [&](bool spoiled) {
      const nn::Build b = one_rank(DType::f64);
      const auto layers = make(b, name, options_of(name));
      Tensor x = random({batch, length, width}, 1);
      if (spoiled) masked_nan(x);
      require_grad(x);
      const Results out = run(*layers, x, {}, {}, Tensor::from({3, 5, 1}, DType::i32));
      CHECK(sum(abs(slice(select(out.y, 0, 0), 0, 3, 2))).item() == 0);
      CHECK(sum(abs(slice(select(out.y, 0, 2), 0, 1, 4))).item() == 0);
      backward(sum(out.y) + sum(out.h));
      std::vector<Tensor> all = {out.y.detach(), out.h.detach(), grad(x)};
      for (const ParameterPtr& p : b.parameters()) all.push_back(clone(p->grad()));
      return all;
    };
    const std::vector<Tensor> plain = gradients(false), spoiled = gradients(true);
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(plain[i], spoiled[i]));
    const nn::Build b = one_rank(DType::f32);
    const auto layers = make(b, name, options_of(name));
    const Tensor x = random({batch, length, width}, 1, DType::f32);
    const auto error = [&](const Tensor& lengths, ExitCode code) {
      return error_of([&] { run(*layers, x, {}, {}, lengths); }, code);
    };
    CHECK(says(error(Tensor::from({3, 5}, DType::i32), ExitCode::internal), "lengths i32 [2]; expected i32 [B] = [3]"));
    CHECK(says(error(Tensor::from({3, 5, 1}), ExitCode::internal), "lengths f32 [3]; expected i32 [B] = [3]"));
    CHECK(says(error(Tensor::from({3, 6, 1}, DType::i32), ExitCode::data), "length 6 at [1] of [3]"));
    CHECK(says(error(Tensor::from({0, 5, 1}, DType::i32), ExitCode::data), "length 0 at [0] of [3]"));
  }
}

TEST_CASE("a call gives the output of run() from zero states") {
  for (const std::string name : {"lstm_deep", "gru_deep"}) {
    const nn::Build b = one_rank(DType::f32);
    const auto layers = make(b, name, options_of(name));
    const Tensor x = random({batch, length, width}, 1, DType::f32);
    const Tensor zeros = Tensor::zeros({4, batch, hidden}, DType::f32);
    const Tensor y = (*layers)(x);
    CHECK(y.shape() == Shape{batch, length, 2 * hidden});
    CHECK(same_bits(y.detach(), run(*layers, x, zeros, zeros).y.detach()));
  }
}

TEST_CASE("a sequence in two parts, with the states passed on, is the whole sequence, with its gradients") {
  for (const std::string name : {"lstm_plain", "gru_plain"}) {
    const auto gradients = [&](bool parts) {
      const nn::Build b = one_rank(DType::f64);
      const auto layers = make(b, name, options_of(name));
      Tensor x = random({batch, length, width}, 1);
      require_grad(x);
      const Results first = run(*layers, parts ? slice(x, 1, 0, 2) : x, {}, {});
      Tensor y = first.y;
      if (parts) y = concat({y, run(*layers, slice(x, 1, 2, length - 2), first.h, first.c).y}, 1);
      backward(y, random(y.shape(), 2));
      std::vector<Tensor> all = {y.detach(), grad(x)};
      for (const ParameterPtr& p : b.parameters()) all.push_back(clone(p->grad()));
      return all;
    };
    const std::vector<Tensor> whole = gradients(false), parts = gradients(true);
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(relative_difference(parts[i], whole[i]) < 1e-14);
  }
}

TEST_CASE("dropout is between layers, in training only, and of each sample alike however the batch is cut") {
  for (const std::string name : {"lstm_plain", "gru_plain"}) {
    const nn::Build b = one_rank(DType::f32);
    nn::RecurrentOptions o = options_of(name);
    const auto without = make(b / "without", name, o);
    o.dropout = 0.5;
    const auto with = make(b / "with", name, o);
    for (std::size_t i = 0; i < b.parameters().size() / 2; ++i)
      copy(b.parameters()[i]->local.detach(), b.parameters()[i + b.parameters().size() / 2]->local);
    const Tensor x = random({batch, length, width}, 1, DType::f32);
    b.run_state()->first_sample = 10;
    const Tensor expected = (*without)(x).detach(), dropped = (*with)(x).detach();
    CHECK(!same_bits(dropped, expected));
    b.run_state()->first_sample = 11;
    CHECK(relative_difference((*with)(view::slice(x, 0, 1, 2)).detach(), view::slice(dropped, 0, 1, 2)) < 1e-6);
    b.run_state()->training = false;
    CHECK(same_bits((*with)(x).detach(), expected));
  }
}

TEST_CASE("on a mesh a recurrent layer has the outputs and gradients of one rank") {
  for (const std::string name : {"lstm_deep", "gru_deep"}) {
    const auto collect = [&](const std::string& mesh_text, Collected& results) {
      run_mesh(mesh_text, [&](const MeshPtr& mesh) {
        const nn::Build b(mesh, DType::f64, 3);
        const auto layers = make(b / "layer", name, options_of(name));
        Tensor x = random({batch, length, width}, 1);
        require_grad(x);
        const Tensor y = (*layers)(x);
        backward(y, random(y.shape(), 2));
        results.add("y", y.detach());
        results.add("dx", grad(x));
        for (const ParameterPtr& p : b.parameters()) results.add(p->name, whole(p->grad(), *p, *mesh));
      });
    };
    Collected one, two;
    collect("tp=1", one);
    collect("tp=2", two);
    for (const auto& [what, tensors] : two.all())
      for (const Tensor& tensor : tensors) CHECK_MESSAGE(same_bits(tensor, one.all().at(what).front()), what);
  }
}

TEST_CASE("parts of sequences, missing sizes and wrong shapes are refused") {
  const auto on = [](const char* mesh_text, bool sequence) {
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      const nn::Lstm lstm(nn::Build(mesh, DType::f32, 1, {.sequence = sequence}) / "lstm", {.input = 4, .hidden = 4});
    });
  };
  CHECK(says(error_of([&] { on("cp=2", false); }, ExitCode::usage),
             "[lstm] lstm: a recurrent layer needs whole sequences on a rank, got cp=2; expected cp=1"));
  CHECK(says(error_of([&] { on("tp=2", true); }, ExitCode::usage), "sequence parallelism over tp=2"));
  on("tp=2", false);
  const nn::Build b = one_rank(DType::f32);
  CHECK(says(error_of([&] { nn::Gru(b / "g", {.input = 3}); }, ExitCode::usage), "set RecurrentOptions::hidden"));
  nn::Gru gru(b / "gru", {.input = 3, .hidden = 4});
  CHECK(says(error_of(
                 [&] {
                   gru(random({2, 5, 4}, 1, DType::f32));
                 },
                 ExitCode::internal),
             "[gru] expected an input [B, T, 3], got [2, 5, 4]; in the layer 'gru'"));
  CHECK(says(error_of(
                 [&] {
                   gru.run(random({2, 5, 3}, 1, DType::f32), random({1, 3, 4}, 1, DType::f32));
                 },
                 ExitCode::internal),
             "an initial state [1, 3, 4]; expected [layers * directions, B, H] = [1, 2, 4] for an input [2, 5, 3]"));
}

}  // namespace recurrent_test
