// Pooling and group norm: gradients against finite differences, dtypes, and the forms for devices other than the CPU.
#include "autograd/group_norm.h"
#include "autograd/pool.h"
#include "autograd/row_norm.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;
using Inputs = std::vector<Tensor>;

namespace channels_test {

TEST_CASE("gradients of pooling and group norm, in every dtype") {
  check_op("max_pool2d",
           [](const Inputs& x) {
             return max_pool2d(x[0], {.kernel = {3, 2}, .stride = {2, 1}});
           },
           {random({2, 3, 7, 5}, 1)});
  check_op("max_pool2d by windows",
           [](const Inputs& x) {
             return max_pool2d_by_windows(x[0], {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}});
           },
           {random({2, 2, 5, 4}, 1)});
  check_op("avg_pool2d of a view",
           [](const Inputs& x) {
             return avg_pool2d(transpose(x[0], 1, 3),
                               {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .count_include_pad = false});
           },
           {random({2, 5, 6, 3}, 1)});
  check_op("adaptive_avg_pool2d",
           [](const Inputs& x) {
             return adaptive_avg_pool2d(x[0], {3, 2});
           },
           {random({2, 2, 7, 5}, 1)});
  check_op("adaptive_avg_pool2d to one", [](const Inputs& x) { return adaptive_avg_pool2d(x[0]); },
           {random({2, 3, 4, 5}, 1)});
  check_op("group_norm", [](const Inputs& x) { return group_norm(x[0], 2, x[1], x[2]); },
           {random({3, 4, 5}, 1), random({4}, 2), random({4}, 3)});
}

TEST_CASE("group_norm repeated in backward has the bits of the first forward; a gradient of gamma alone is the same") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Tensor x = random({3, 6, 7, 11}, 1, dtype), gamma = random({6}, 2, dtype), beta = random({6}, 3, dtype),
                 dy = random(x.shape(), 4, dtype);
    const auto gradients = [&](bool repeat, bool of_x) {
      Inputs in = {clone(x), clone(gamma), clone(beta)};
      for (std::size_t i = of_x ? 0 : 1; i < in.size(); ++i) require_grad(in[i]);
      const RepeatCheapInputs scope(repeat);
      backward(silu(group_norm(in[0], 3, in[1], in[2])), dy);
      return Inputs{of_x ? grad(in[0]) : Tensor(), grad(in[1]), grad(in[2])};
    };
    const Inputs kept = gradients(false, true), repeated = gradients(true, true), weights = gradients(false, false);
    for (std::size_t i = 0; i < kept.size(); ++i) CHECK(same_bits(kept[i], repeated[i]));
    for (std::size_t i = 1; i < kept.size(); ++i) CHECK(same_bits(kept[i], weights[i]));
  }
}

TEST_CASE("max pooling chooses the same element with both forms, also among equals, infinities and NaN") {
  Tensor x = cast(random_ids({2, 3, 9, 8}, 1, -2, 2), DType::f32);
  const float inf = std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < 30; ++i) x.data<float>()[i] = -inf;
  x.data<float>()[100] = inf;
  x.data<float>()[110] = x.data<float>()[111] = std::nanf("");
  const MaxPool2dOptions o{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const auto run = [&](Tensor (*f)(const Tensor&, const MaxPool2dOptions&)) {
    Tensor leaf = clone(x);
    require_grad(leaf);
    const Tensor y = f(leaf, o);
    backward(y, random(y.shape(), 2, DType::f32));
    return Inputs{y.detach(), grad(leaf)};
  };
  const Inputs cpu = run(max_pool2d), windows = run(max_pool2d_by_windows);
  CHECK(same_bits(cpu[0], windows[0]));
  // A plane of -infinity has its gradient in the padding, where by windows the first element may be.
  CHECK(relative_difference(view::slice(view::slice(cpu[1], 0, 0, 2), 1, 1, 2),
                            view::slice(view::slice(windows[1], 0, 0, 2), 1, 1, 2)) < 1e-6);
}

TEST_CASE("the passes of norms over rows are those made of the table's kernels") {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f64, 1e-14}, std::pair{DType::f32, 1e-6}, std::pair{DType::bf16, 0x1p-8}}) {
    CAPTURE(name(dtype));
    const DType sums = accumulate_dtype(dtype);
    const Tensor x = random({7, 37}, 1, dtype), dy = random({7, 37}, 2, dtype);
    const Tensor centre = random({7}, 3, sums), a = random({7}, 4, sums), b = random({7}, 5, sums),
                 c = random({7}, 6, sums);
    CHECK(relative_difference(row_squares(x, centre), by_table::row_squares(x, centre)) < tolerance);
    const auto [sum_one, product_one] = row_products(dy, x, centre);
    const auto [sum_two, product_two] = by_table::row_products(dy, x, centre);
    CHECK(relative_difference(sum_one, sum_two) < tolerance);
    CHECK(relative_difference(product_one, product_two) < tolerance);
    CHECK(relative_difference(scale_rows(x, centre, a, b), by_table::scale_rows(x, centre, a, b)) < tolerance);
    CHECK(relative_difference(combine_rows(dy, x, centre, a, b, c), by_table::combine_rows(dy, x, centre, a, b, c)) <
          tolerance);
  }
}

TEST_CASE("pooling and group norm refuse sizes that do not fit") {
  const Tensor x = random({2, 4, 5, 6}, 1);
  const auto refused = [](const std::function<void()>& f, std::string_view part) {
    CHECK(says(error_of(f, ExitCode::internal), part));
  };
  refused([&] { max_pool2d(x, {.kernel = {6, 2}}); }, "[max_pool2d] a window of 6 x 2");
  refused([&] { max_pool2d(x, {.kernel = {2, 2}, .padding = {2, 0}}); }, "a padding from 0 to half of the kernel");
  refused([&] { avg_pool2d(view::select(x, 0, 0)); }, "[avg_pool2d] an input [4, 5, 6]; expected 4 dims");
  refused([&] { adaptive_avg_pool2d(x, {0, 1}); }, "an output of 0 x 1; expected at least 1 x 1");
  refused([&] { group_norm(x, 3, random({4}, 1), random({4}, 2)); },
          "[group_norm] an input [2, 4, 5, 6] with 3 groups");
  refused([&] { group_norm(x, 2, random({4}, 1), {}); }, "needs a gain and a shift f64 [4], got undefined");
}

}  // namespace channels_test
