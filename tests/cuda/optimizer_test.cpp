// Fused AdamW and gradient descent against f64, over many tensors of ragged sizes at unaligned addresses; clipping by a
// norm that stays on the device.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "cuda/kernels/optimizer.h"
#include "cuda/kernels/reduce.h"
#include "cuda/kernels/sgd.h"
#include "cuda/kernels/update_scale.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

namespace optimizer_test {
namespace {

template <class G>
struct Parameters {
  struct One {
    Buffer<float> weight, m, v;
    Buffer<G> gradient, low;
    One(std::size_t n, std::size_t offset)
        : weight(n, offset), m(n, offset), v(n, offset), gradient(n, offset), low(n, offset) {}
  };
  std::vector<std::unique_ptr<One>> all;
  std::vector<AdamWTensor<G>> tensors;

  explicit Parameters(const std::vector<std::size_t>& sizes) {
    tensors.reserve(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      auto one = std::make_unique<One>(sizes[i], i % 3 == 1 ? 1 : 0);
      one->weight.fill_random(10 + i);
      one->m.fill_random(20 + i, 0.1F);
      one->gradient.fill_random(40 + i);
      for (std::size_t j = 0; j < sizes[i]; ++j) one->v.set(j, 0.01F * static_cast<float>(1 + j % 17));
      const auto count = static_cast<std::int64_t>(sizes[i]);
      tensors.push_back({one->weight.data(), one->m.data(), one->v.data(), one->gradient.data(),
                         i % 4 == 3 ? nullptr : one->low.data(), count, i % 2 == 0 ? 0.1F : 0.0F});
      all.push_back(std::move(one));
    }
  }
  std::span<const AdamWTensor<G>> list() const { return tensors; }
  /// Writes the sum of squares of all gradients to `norm`, on the device.
  void add_squares(Buffer<double>& norm) const {
    std::vector<SquaresOf> gradients;
    for (const auto& t : tensors) gradients.push_back({t.gradient, t.count, dtype_of<G>});
    Buffer<double> partials(static_cast<std::size_t>(squares_partials(gradients)));
    sum_squares(gradients, partials.data(), norm.data());
  }
  double norm_squared() const {
    double sum = 0;
    for (const auto& one : all)
      for (std::size_t j = 0; j < one->gradient.size(); ++j) sum += one->gradient.at(j) * one->gradient.at(j);
    return sum;
  }
};

const std::vector<std::size_t> kSizes = {1, 3, 0, 4, 4096, 4097, 257, 9001, 64};

constexpr AdamWSettings kSettings = {0.01F, 0.9F, 0.95F, 1e-8F, 1 / 0.271F, 1 / 0.142625F, 0.5F};

/// The largest error of weights and moments against f64, with the gradient multiplied by `factor`.
template <class G>
double worst_step(const Parameters<G>& p, const Parameters<G>& before, double factor) {
  double worst = 0;
  for (std::size_t i = 0; i < p.all.size(); ++i)
    for (std::size_t j = 0; j < p.all[i]->weight.size(); ++j) {
      const double g = factor * before.all[i]->gradient.at(j);
      const double m = 0.9 * before.all[i]->m.at(j) + 0.1 * g, v = 0.95 * before.all[i]->v.at(j) + 0.05 * g * g;
      double w = before.all[i]->weight.at(j);
      w -= 0.01 * (m / 0.271 / (std::sqrt(v / 0.142625) + 1e-8) + static_cast<double>(p.tensors[i].decay) * w);
      keep_largest(worst, std::abs(w - p.all[i]->weight.at(j)));
      keep_largest(worst, std::abs(m - p.all[i]->m.at(j)));
      keep_largest(worst, std::abs(v - p.all[i]->v.at(j)));
    }
  return worst;
}

/// Whether `low` holds the rounded weights.
template <class Low>
bool is_rounded(const Buffer<Low>& low, const Buffer<float>& weight) {
  for (std::size_t j = 0; j < low.size(); ++j)
    if (low.at(j) != static_cast<double>(static_cast<float>(Low(weight.value(j))))) return false;
  return true;
}

/// Clips on the device, by the norm of gradients that are those of twice the loss. max_norm 0: no clipping.
template <class G>
void check_adamw(double max_norm) {
  Parameters<G> p(kSizes), before(kSizes);
  Buffer<double> norm(1);
  p.add_squares(norm);
  CHECK(norm.value(0) == doctest::Approx(p.norm_squared()).epsilon(1e-12));
  Buffer<double> loss(std::vector<double>{3.5});
  Buffer<float> scale(1);
  update_scale(loss.data(), norm.data(), 2, max_norm, scale.data());
  adamw(p.list(), kSettings, scale.data());
  const double length = std::sqrt(p.norm_squared()) * 0.5;
  CHECK(worst_step(p, before, 0.5 * (max_norm > 0 && length > max_norm ? max_norm / length : 1)) < 1e-6);
  for (std::size_t i = 0; i < kSizes.size(); ++i)
    if (p.tensors[i].low != nullptr) CHECK(is_rounded(p.all[i]->low, p.all[i]->weight));
}

}  // namespace

TEST_CASE_TEMPLATE("cuda adamw: many ragged tensors in one launch, clipped or not, equal f64", G, float, bf16, f16) {
  under_schedules([] {
    check_adamw<G>(0);
    check_adamw<G>(1);
  });
}

TEST_CASE_TEMPLATE("cuda adamw: f32 gradients and copies in any dtype equal f64", Low, float, bf16, f16) {
  under_schedules([] {
    Parameters<float> p(kSizes), before(kSizes);
    std::vector<AdamWTensor<float, Low>> list;
    std::vector<std::unique_ptr<Buffer<Low>>> lows;
    for (const AdamWTensor<float>& t : p.tensors) {
      lows.push_back(std::make_unique<Buffer<Low>>(static_cast<std::size_t>(t.count), lows.size() % 2));
      list.push_back(
          {t.weight, t.m, t.v, t.gradient, t.low != nullptr ? lows.back()->data() : nullptr, t.count, t.decay});
    }
    adamw<float, Low>(list, kSettings);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].low != nullptr) CHECK(is_rounded(*lows[i], p.all[i]->weight));
    CHECK(worst_step(p, before, 0.5) < 1e-6);
  });
}

TEST_CASE("cuda adamw: more tensors than one launch takes") {
  const std::vector<std::size_t> sizes(kOptimizerMostTensors + 5, 3);
  Parameters<float> p(sizes), before(sizes);
  const std::uint64_t launches = launch_count();
  adamw(p.list(), kSettings);
  CHECK(launch_count() - launches == 2);
  CHECK(worst_step(p, before, 0.5) < 1e-6);
}

TEST_CASE_TEMPLATE("cuda sgd: many ragged tensors in one launch, with and without momentum, equal f64", Low, float,
                   bf16, f16) {
  for (const bool on_device : {false, true})
    under_schedules([on_device] {
      Parameters<float> p(kSizes), before(kSizes);
      std::vector<SgdTensor<Low>> list;
      std::vector<std::unique_ptr<Buffer<Low>>> lows;
      for (const AdamWTensor<float>& t : p.tensors) {
        lows.push_back(std::make_unique<Buffer<Low>>(static_cast<std::size_t>(t.count), lows.size() % 2));
        list.push_back({t.gradient, t.weight, lows.size() % 3 == 0 ? nullptr : t.m,
                        t.low != nullptr ? lows.back()->data() : nullptr, t.count, t.decay});
      }
      Buffer<float> scale(std::vector<float>{0.5F});
      sgd<Low>(list, {0.01F, 0.9F, on_device ? 7.0F : 0.5F}, on_device ? scale.data() : nullptr);
      double worst = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        const bool momentum = list[i].velocity != nullptr;
        for (std::size_t j = 0; j < kSizes[i]; ++j) {
          const double w = before.all[i]->weight.at(j), decay = static_cast<double>(list[i].decay);
          const double v =
              (momentum ? 0.9 * before.all[i]->m.at(j) : 0) + 0.5 * before.all[i]->gradient.at(j) + decay * w;
          keep_largest(worst, std::abs(w - 0.01 * v - p.all[i]->weight.at(j)));
          if (momentum) keep_largest(worst, std::abs(v - p.all[i]->m.at(j)));
        }
        if (list[i].low != nullptr) CHECK(is_rounded(*lows[i], p.all[i]->weight));
      }
      CHECK(worst < 1e-6);
    });
}

TEST_CASE("cuda update_scale: the host's formula, to the bit") {
  const double inf = INFINITY, nan = NAN;
  for (const double loss : {3.0, -1e300, inf, -inf, nan})
    for (const double squares : {0.0, 64.0, 1e60, 0.7, inf, nan})
      for (const double loss_scale : {1.0, 65536.0, 3.0})
        for (const double max_norm : {0.0, 1.0, 0.3}) {
          Buffer<double> of_loss(std::vector<double>{loss}), of_squares(std::vector<double>{squares});
          Buffer<float> scale(1), without_loss(1);
          update_scale(of_loss.data(), of_squares.data(), loss_scale, max_norm, scale.data());
          update_scale(nullptr, of_squares.data(), loss_scale, max_norm, without_loss.data());
          const double norm = std::sqrt(squares) / loss_scale;
          const double factor = (max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0) / loss_scale;
          const bool finite = std::isfinite(norm);
          CHECK((finite ? without_loss.value(0) == static_cast<float>(factor) : std::isnan(without_loss.value(0))));
          CHECK((finite && std::isfinite(loss) ? scale.value(0) == static_cast<float>(factor)
                                               : std::isnan(scale.value(0))));
        }
}

TEST_CASE("cuda adamw and sgd: a gradient that is not finite changes nothing; copies are written from the weights") {
  under_schedules([] {
    Parameters<bf16> p({300, 4099}), before({300, 4099});
    p.all[0]->gradient.set(7, bf16(INFINITY));
    Buffer<double> norm(1);
    p.add_squares(norm);
    Buffer<float> scale(1);
    update_scale(nullptr, norm.data(), 1, 1, scale.data());
    adamw(p.list(), {0.1F, 0.9F, 0.9F, 1e-8F, 10.0F, 10.0F, 1.0F}, scale.data());
    const auto check_unchanged = [&] {
      for (std::size_t i = 0; i < p.all.size(); ++i) {
        for (std::size_t j = 0; j < p.all[i]->weight.size(); ++j) {
          CHECK(p.all[i]->weight.at(j) == before.all[i]->weight.at(j));
          CHECK(p.all[i]->m.at(j) == before.all[i]->m.at(j));
          CHECK(p.all[i]->v.at(j) == before.all[i]->v.at(j));
        }
        CHECK(is_rounded(p.all[i]->low, p.all[i]->weight));
        p.all[i]->low.fill(7);
      }
    };
    check_unchanged();
    std::vector<SgdTensor<bf16>> list;
    for (std::size_t i = 0; i < p.all.size(); ++i)
      list.push_back({p.all[i]->v.data(), p.all[i]->weight.data(), p.all[i]->m.data(), p.all[i]->low.data(),
                      p.tensors[i].count, 0.1F});
    sgd<bf16>(list, {0.1F, 0.9F, 1.0F}, scale.data());
    check_unchanged();
  });
}

}  // namespace optimizer_test
