// Operations against PyTorch, value and gradients, in f64 and f32, with inputs that are dense, transposed and parts of
// larger tensors; and in 16 bits against f64. tests/golden/make_operation_goldens.py has the same functions in Python.
#include "autograd/ops.h"

#include <functional>
#include <map>

#include "data/safetensors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace operation_goldens_test {
namespace {

using Inputs = std::vector<Tensor>;
struct GoldenCase {
  const char* name;
  std::vector<const char*> inputs;
  std::function<Tensor(const Inputs&)> f;
};

/// The sum of (i + 1) times the square of part i, without part 1.
Tensor unbound(const Tensor& x, int dim) {
  const std::vector<Tensor> parts = unbind(x, dim);
  Tensor result = square(parts[0]);
  for (std::size_t i = 2; i < parts.size(); ++i) result = result + static_cast<double>(i + 1) * square(parts[i]);
  return result;
}

/// Part i to the power of i + 2, one after the other.
Tensor powers(const std::vector<Tensor>& parts) {
  std::vector<Tensor> results;
  for (const Tensor& part : parts) results.push_back(pow(part, static_cast<double>(results.size() + 2)));
  return concat(results, -1);
}

const std::vector<GoldenCase>& cases() {
  static const std::vector<GoldenCase> table = {
      {"number - x", {"x"}, [](const Inputs& i) { return 1.25 - i[0]; }},
      {"x - number", {"x"}, [](const Inputs& i) { return i[0] - 1.25; }},
      {"number * x", {"x"}, [](const Inputs& i) { return 2.5 * i[0]; }},
      {"number + x", {"x"}, [](const Inputs& i) { return 2.5 + i[0]; }},
      {"x / number", {"x"}, [](const Inputs& i) { return i[0] / 3.0; }},
      {"number / x", {"p"}, [](const Inputs& i) { return 2.0 / i[0]; }},
      {"permute",
       {"x"},
       [](const Inputs& i) {
         return square(permute(i[0], {2, 0, 1}));
       }},
      {"stack 1",
       {"x", "y"},
       [](const Inputs& i) {
         return stack({i[0], i[1], i[0]}, 1);
       }},
      {"stack -1",
       {"x", "y"},
       [](const Inputs& i) {
         return square(stack({i[0], i[1]}, -1));
       }},
      {"concat 0",
       {"x", "y", "p"},
       [](const Inputs& i) {
         return square(concat({i[0], i[1], i[0], i[2]}, 0));
       }},
      {"concat 1", {"x", "one", "y"}, [](const Inputs& i) { return square(concat(i, 1)); }},
      {"unbind 0", {"x"}, [](const Inputs& i) { return unbound(i[0], 0); }},
      {"unbind 1", {"x"}, [](const Inputs& i) { return unbound(i[0], 1); }},
      {"unbind 2", {"x"}, [](const Inputs& i) { return unbound(i[0], 2); }},
      {"split", {"x"}, [](const Inputs& i) { return powers(split(i[0], 2, -1)); }},
      {"split by lengths",
       {"x"},
       [](const Inputs& i) {
         return powers(split(i[0], {1, 3, 1}, 2));
       }},
      {"chunk", {"x"}, [](const Inputs& i) { return chunk(i[0], 2, 1)[0] * chunk(i[0], 2, 1)[1]; }},
      {"unsqueeze and squeeze",
       {"x", "one"},
       [](const Inputs& i) { return unsqueeze(i[0], 1) * unsqueeze(squeeze(i[1], 1), -2); }},
      {"flatten", {"x"}, [](const Inputs& i) { return square(flatten(i[0], 1, 2)); }},
      {"pad", {"x"}, [](const Inputs& i) { return square(pad(i[0], 1, 2, 1, 1.5)); }},
      {"flip", {"x", "y"}, [](const Inputs& i) { return flip(i[0], 1) * i[1]; }},
      {"where", {"x", "y"}, [](const Inputs& i) { return where(i[0] > i[1], i[0] * i[0], i[1]); }},
      {"where, broadcast", {"x", "row", "column"}, [](const Inputs& i) { return where(i[0] < 0.25, i[1], i[2]); }},
      {"where, numbers",
       {"x", "y"},
       [](const Inputs& i) { return where(i[0] >= i[1], i[0], 3.0) + where(i[0] <= 0.5, -1.0, i[1]); }},
      {"masked_fill", {"x", "y"}, [](const Inputs& i) { return masked_fill(i[0], i[1] > 0, -2.0); }},
      {"maximum", {"x", "y"}, [](const Inputs& i) { return maximum(i[0], i[1]); }},
      {"maximum, equal", {"t", "u"}, [](const Inputs& i) { return maximum(i[0], i[1]); }},
      {"maximum, broadcast", {"x", "row"}, [](const Inputs& i) { return maximum(i[0], i[1]); }},
      {"minimum", {"x", "column"}, [](const Inputs& i) { return minimum(i[0], i[1]); }},
      {"minimum, equal", {"t", "u"}, [](const Inputs& i) { return minimum(i[0], i[1]); }},
      {"clamp", {"x"}, [](const Inputs& i) { return clamp(i[0], -0.5, 0.75); }},
      {"clamp, at the bounds", {"t"}, [](const Inputs& i) { return clamp(i[0], -1, 1); }},
      {"abs", {"x"}, [](const Inputs& i) { return abs(i[0]); }},
      {"abs, with zeros", {"t"}, [](const Inputs& i) { return abs(i[0]); }},
      {"pow 3", {"x"}, [](const Inputs& i) { return pow(i[0], 3); }},
      {"pow 2", {"x"}, [](const Inputs& i) { return pow(i[0], 2); }},
      {"pow 0.5", {"p"}, [](const Inputs& i) { return pow(i[0], 0.5); }},
      {"pow 2.5", {"p"}, [](const Inputs& i) { return pow(i[0], 2.5); }},
      {"pow -1", {"p"}, [](const Inputs& i) { return pow(i[0], -1); }},
      {"pow -1.5", {"p"}, [](const Inputs& i) { return pow(i[0], -1.5); }},
      {"sum 0, 2",
       {"x"},
       [](const Inputs& i) {
         return sum(i[0], {0, 2});
       }},
      {"sum -1, 0, kept",
       {"x"},
       [](const Inputs& i) {
         return sum(i[0], {-1, 0}, true);
       }},
      {"mean 0, 1",
       {"x"},
       [](const Inputs& i) {
         return mean(i[0], {0, 1});
       }},
      {"var", {"x"}, [](const Inputs& i) { return var(i[0]); }},
      {"var 1", {"x"}, [](const Inputs& i) { return var(i[0], 1); }},
      {"var 0, 2, correction 0",
       {"x"},
       [](const Inputs& i) {
         return var(i[0], {0, 2}, 0, true);
       }},
      {"norm", {"x"}, [](const Inputs& i) { return norm(i[0]); }},
      {"norm 1", {"x"}, [](const Inputs& i) { return norm(i[0], 1); }},
      {"norm 0, 2",
       {"x"},
       [](const Inputs& i) {
         return norm(i[0], {0, 2}, true);
       }},
      {"norm of zeros", {"x"}, [](const Inputs& i) { return norm(i[0] * 0.0, 1); }},
      {"max", {"t"}, [](const Inputs& i) { return max(i[0]); }},
      {"max 0, 2",
       {"t"},
       [](const Inputs& i) {
         return max(i[0], {0, 2});
       }},
      {"max 1", {"x"}, [](const Inputs& i) { return max(i[0], 1, true); }},
      {"min", {"t"}, [](const Inputs& i) { return min(i[0]); }},
      {"min 0, 2",
       {"t"},
       [](const Inputs& i) {
         return min(i[0], {0, 2}, true);
       }},
      {"min 1", {"x"}, [](const Inputs& i) { return min(i[0], 1); }},
      {"softmax 0", {"x"}, [](const Inputs& i) { return softmax(i[0], 0); }},
      {"softmax 1", {"x"}, [](const Inputs& i) { return softmax(i[0], 1); }},
      {"softmax -1", {"x"}, [](const Inputs& i) { return softmax(i[0]); }},
      {"log_softmax", {"x"}, [](const Inputs& i) { return log_softmax(i[0]); }},
      {"log_softmax 1", {"x"}, [](const Inputs& i) { return log_softmax(i[0], 1); }},
      {"logsumexp", {"x"}, [](const Inputs& i) { return logsumexp(i[0]); }},
      {"logsumexp 0, kept", {"x"}, [](const Inputs& i) { return logsumexp(i[0], 0, true); }},
      {"cumsum 0", {"x"}, [](const Inputs& i) { return cumsum(i[0], 0); }},
      {"cumsum 1", {"x"}, [](const Inputs& i) { return cumsum(i[0], 1); }},
      {"cumsum -1", {"x"}, [](const Inputs& i) { return cumsum(i[0], -1); }},
      {"topk", {"x"}, [](const Inputs& i) { return topk(i[0], 3).values; }},
      {"topk 1", {"x"}, [](const Inputs& i) { return topk(i[0], 2, 1).values; }},
      {"gather 1", {"x", "index"}, [](const Inputs& i) { return gather(i[0], 1, i[1]); }},
      {"gather 0", {"m", "index0"}, [](const Inputs& i) { return gather(i[0], 0, i[1]); }},
      {"scatter_add 1", {"x", "index", "values"}, [](const Inputs& i) { return scatter_add(i[0], 1, i[1], i[2]); }},
      {"einsum bij,bkj->bik", {"x", "y"}, {}},
      {"einsum bqhd,bkhd->bhqk", {"q", "k"}, {}},
      {"einsum ij,jk,kl", {"m", "n", "o"}, {}},
      {"einsum ij->ji", {"m"}, {}},
      {"einsum abc->b", {"x"}, {}},
      {"einsum ij->", {"m"}, {}},
      {"einsum abc,d->dabc", {"x", "row"}, {}},
      {"einsum abc,abc->ca", {"x", "y"}, {}},
      {"einsum abc,ac->ab", {"x", "o"}, {}},
      {"einsum abc,abd->cd", {"x", "y"}, {}},
      {"einsum abc,c,da->db", {"x", "row", "n"}, {}},
  };
  return table;
}

Tensor value_of(const GoldenCase& c, const Inputs& inputs) {
  return c.f ? c.f(inputs) : einsum(std::string_view(c.name).substr(std::string_view("einsum ").size()), inputs);
}

const SafetensorsFile& golden() {
  static const SafetensorsFile file("tests/golden/operations.safetensors");
  return file;
}

/// The same elements behind other strides.
const std::map<std::string, Tensor (*)(const Tensor&)> layouts = {
    {"dense", [](const Tensor& x) { return x; }},
    {"transposed",
     [](const Tensor& x) { return x.dims() < 2 ? x : view::transpose(contiguous(view::transpose(x, 0, -1)), 0, -1); }},
    {"sliced",
     [](const Tensor& x) {
       if (x.dims() == 0) return x;
       const Tensor whole = Tensor::full(x.shape().with(-1, x.size(-1) + 3), 77, x.dtype());
       Tensor part = view::slice(whole, -1, 2, x.size(-1));
       copy(x, part);
       return part;
     }},
};

Inputs inputs_of(const GoldenCase& c, DType dtype, Tensor (*layout)(const Tensor&)) {
  Inputs inputs;
  for (const char* name : c.inputs) {
    const Tensor x = golden().read(fmt::format("in.{}", name));
    inputs.push_back(layout(is_floating(x.dtype()) ? cast(x, dtype) : x));
  }
  return inputs;
}

/// A zero in the reference has to be matched within the tolerance, too.
double distance(const Tensor& got, const Tensor& expected) {
  return rounding_difference(contiguous(cast(got, DType::f64)), expected);
}

}  // namespace

TEST_CASE("operations and their gradients equal PyTorch's, for every layout of the inputs") {
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-13}, std::pair{DType::f32, 32 * 0x1p-24}}) {
    for (const GoldenCase& c : cases()) {
      for (const auto& [layout_name, layout] : layouts) {
        const std::string what = fmt::format("{}, {}, {}", c.name, name(dtype), layout_name);
        CAPTURE(what);
        Inputs inputs = inputs_of(c, dtype, layout);
        for (Tensor& x : inputs)
          if (is_floating(x.dtype())) require_grad(x);
        const Tensor y = value_of(c, inputs), expected = golden().read(fmt::format("{}.y", c.name));
        REQUIRE(y.shape() == expected.shape());
        REQUIRE(y.dtype() == dtype);
        CHECK(distance(y, expected) <= tolerance);
        const Tensor weights = view::slice(golden().read("in.weights"), 0, 0, y.count());
        backward(y, cast(view::reshape(weights, y.shape()), dtype));
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          CAPTURE(i);
          const std::string key = fmt::format("{}.gradient {}", c.name, i);
          if (golden().contains(key)) {
            REQUIRE(grad(inputs[i]).defined());
            CHECK(distance(grad(inputs[i]), golden().read(key)) <= tolerance);
          } else if (is_floating(inputs[i].dtype())) {
            CHECK(!grad(inputs[i]).defined());
          }
        }
      }
    }
  }
}

TEST_CASE("indices equal PyTorch's") {
  const auto expected = [](const char* name) { return golden().read(fmt::format("{}.indices", name)); };
  const Tensor x = golden().read("in.x"), index = golden().read("in.index");
  for (const auto& [layout_name, layout] : layouts) {
    CAPTURE(layout_name);
    CHECK(same_bits(argmax(layout(x), 1), expected("argmax 1")));
    CHECK(same_bits(argmax(layout(x), -1, true), expected("argmax -1, kept")));
    CHECK(same_bits(argmin(layout(x), 0), expected("argmin 0")));
    CHECK(same_bits(topk(layout(x), 2, 1).indices, expected("topk 1")));
    CHECK(same_bits(one_hot(layout(index), 6), cast(expected("one_hot"), DType::f32)));
  }
}

TEST_CASE("operations in bf16 and f16 against f64") {
  for (const GoldenCase& c : cases()) {
    const Inputs inputs = inputs_of(c, DType::f64, layouts.at("dense"));
    bool all_floating = true;
    for (const Tensor& x : inputs) all_floating &= is_floating(x.dtype());
    const bool mask_only = std::string_view(c.name) == "where, broadcast" || std::string_view(c.name) == "masked_fill";
    if (!all_floating || mask_only) continue;
    check_dtype(
        c.name, [&](const Inputs& i) { return value_of(c, i); }, inputs, DType::bf16, 16 * 0x1p-9);
    check_dtype(
        c.name, [&](const Inputs& i) { return value_of(c, i); }, inputs, DType::f16, 16 * 0x1p-11);
  }
}

}  // namespace operation_goldens_test
