// Cross-entropy of the CUDA kernel table against the CPU's: statistics of a slice, the sum of the losses, the gradient.
#include "tests/cuda/table_support.h"

using namespace trireme;
using namespace cuda_test;

namespace table_cross_entropy_test {
namespace {

/// Statistics of each row: maximum, sum of exponentials, the target's logit, the sum of logits.
struct Stats {
  Tensor maximum, sum_exp, target_logit, logit_sum;
  Stats(std::int64_t rows, Device device)
      : maximum(Tensor::empty({rows}, DType::f32, device)),
        sum_exp(Tensor::empty({rows}, DType::f32, device)),
        target_logit(Tensor::empty({rows}, DType::f32, device)),
        logit_sum(Tensor::empty({rows}, DType::f32, device)) {}
};

void check(DType dtype, const Tensor& targets, std::int64_t columns, const VocabSlice& slice, double smoothing) {
  const std::int64_t rows = targets.count();
  Tensor logits = Tensor::empty({rows, columns}, dtype);
  host().axpby(7.0, random(logits.shape(), 1, dtype, uniform(-1, 1)), 0.0, logits);
  const Tensor logits2 = there(logits), targets2 = there(targets);
  Stats stats(rows, Device::cpu), stats2(rows, Device::cuda);
  host().cross_entropy_stats(logits, targets, slice, stats.maximum, stats.sum_exp, stats.target_logit, stats.logit_sum);
  gpu().cross_entropy_stats(logits2, targets2, slice, stats2.maximum, stats2.sum_exp, stats2.target_logit,
                            stats2.logit_sum);
  CHECK(same_bits_there(stats2.maximum, stats.maximum));
  CHECK(difference(stats2.sum_exp, stats.sum_exp) < 1);
  CHECK(same_bits_there(stats2.target_logit, stats.target_logit));
  CHECK(difference(stats2.logit_sum, stats.logit_sum, 5e-5) < 1);

  // From the same statistics.
  const auto loss = [&](const KernelTable& table, const Tensor& ids, const Stats& of) {
    Tensor result = Tensor::empty({}, DType::f32, ids.device());
    table.cross_entropy_loss(ids, of.maximum, of.sum_exp, of.target_logit, of.logit_sum, smoothing, slice.global, 0.3,
                             result);
    return result.item();
  };
  Stats same = stats;
  same.maximum = there(stats.maximum), same.sum_exp = there(stats.sum_exp);
  same.target_logit = there(stats.target_logit), same.logit_sum = there(stats.logit_sum);
  CHECK(loss(gpu(), targets2, same) == doctest::Approx(loss(host(), targets, stats)).epsilon(2e-7));  // rounded to f32

  const Tensor two = Tensor::full({}, 2);  // the gradient of the loss
  Tensor gradient = Tensor::empty(logits.shape(), dtype), beside = like(gradient), over = there(logits);
  host().cross_entropy_backward(logits, targets, slice, stats.maximum, stats.sum_exp, smoothing, 0.25, two, gradient);
  gpu().cross_entropy_backward(logits2, targets2, slice, same.maximum, same.sum_exp, smoothing, 0.25, there(two),
                               beside);
  gpu().cross_entropy_backward(over, targets2, slice, same.maximum, same.sum_exp, smoothing, 0.25, there(two), over);
  CHECK(difference(beside, gradient, 1e-6) < 1);
  CHECK(same_bits_there(over, beside.to(Device::cpu)));
}

/// One pass over a whole vocabulary with padding, against the two passes.
void check_one_pass(DType dtype, std::int64_t columns, std::int64_t valid, double smoothing) {
  const Tensor targets = Tensor::from<std::int32_t>({{0, -1, static_cast<std::int32_t>(valid - 1)}}, {3});
  const Tensor logits = there(random({3, columns}, 1, dtype, uniform(-7, 7))), ids = there(targets);
  const VocabSlice slice{0, valid, valid};
  Stats two(3, Device::cuda), one(3, Device::cuda);
  Tensor gradient = like(logits), beside = like(logits), over = there(logits.to(Device::cpu));
  gpu().cross_entropy_stats(logits, ids, slice, two.maximum, two.sum_exp, two.target_logit, two.logit_sum);
  gpu().cross_entropy_backward(logits, ids, slice, two.maximum, two.sum_exp, smoothing, 0.5, there(Tensor::full({}, 1)),
                               gradient);
  for (Tensor* const to : {&beside, &over}) {
    const Tensor from = to == &over ? over : logits;
    gpu().cross_entropy_one_pass(from, ids, slice, smoothing, 0.5, one.maximum, one.sum_exp, one.target_logit,
                                 one.logit_sum, *to);
    CHECK(same_bits_there(*to, gradient.to(Device::cpu)));
    CHECK(same_bits_there(one.maximum, two.maximum.to(Device::cpu)));
    CHECK(same_bits_there(one.sum_exp, two.sum_exp.to(Device::cpu)));
    CHECK(same_bits_there(one.target_logit, two.target_logit.to(Device::cpu)));
    CHECK(same_bits_there(one.logit_sum, two.logit_sum.to(Device::cpu)));
  }
}

}  // namespace

TEST_CASE("cuda table: cross-entropy in one pass gives the bits of two, also where shared memory ends within a row") {
  const cuda::ScopedEmulatedDevice device;
  under_schedules([&] {
    for (const DType dtype : DTypes::training) {
      check_one_pass(dtype, 64, 61, 0.1);
      check_one_pass(dtype, 61, 61, 0);
      check_one_pass(dtype, 9001, 8999, 0.1);  // several rounds, rows at any address
    }
  });
  check_one_pass(DType::f32, 40000, 39990, 0.1);
  check_one_pass(DType::bf16, 64001, 64001, 0);
}

TEST_CASE("cuda table: cross-entropy of a padded slice, smoothed or not, some rows ignored") {
  const cuda::ScopedEmulatedDevice device;
  // For slice [100, 160) or [100, 161): in it, ignored, its first, near its end, of another slice, and padding or
  // another slice.
  const std::vector<std::int32_t> ids = {103, -1, 100, 159, 7, 161};
  const Tensor targets = Tensor::from<std::int32_t>(ids, {6});
  under_schedules([&] {
    for (const DType dtype : DTypes::training) {
      check(dtype, targets, 64, {.first = 100, .valid = 60, .global = 300}, 0.1);
      check(dtype, targets, 61, {.first = 100, .valid = 61, .global = 300}, 0);
    }
  });
  check(DType::bf16, Tensor::empty({0}, DType::i32), 64, {.first = 0, .valid = 60, .global = 60}, 0.1);
}

TEST_CASE("cuda table: the losses of many rows are added in f64, in the same order every time") {
  const cuda::ScopedEmulatedDevice device;
  constexpr std::int64_t rows = 9000;
  const Tensor targets = Tensor::full({rows}, 1, DType::i32);
  const Tensor zeros = Tensor::zeros({rows}), large = Tensor::full({rows}, 16777216.0), ones = Tensor::full({rows}, 1);
  targets.data<std::int32_t>()[17] = -1;
  Tensor expected = Tensor::empty({}), got = there(expected);
  host().cross_entropy_loss(targets, large, ones, ones, zeros, 0, 10, 0.5, expected);
  CHECK(expected.item() == static_cast<float>(0.5 * (rows - 1) * 16777215.0));
  const Tensor ones2 = there(ones);
  under_schedules([&] {
    gpu().cross_entropy_loss(there(targets), there(large), ones2, ones2, there(zeros), 0, 10, 0.5, got);
    CHECK(got.item() == expected.item());
  });
}

}  // namespace table_cross_entropy_test
