// Fused AdamW and the gradient norm against f64, over many tensors of ragged sizes at unaligned addresses.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "cuda/kernels/optimizer.h"
#include "tests/cuda/support.h"

using namespace trireme;
using namespace trireme::cuda;
using cuda_test::Buffer;
using cuda_test::under_schedules;

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
  std::vector<Tile> tiles;
  std::unique_ptr<Buffer<AdamWTensor<G>>> device_tensors;
  std::unique_ptr<Buffer<Tile>> device_tiles;

  explicit Parameters(const std::vector<std::size_t>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      auto one = std::make_unique<One>(sizes[i], i % 3 == 1 ? 1 : 0);
      one->weight.fill_random(10 + i);
      one->m.fill_random(20 + i, 0.1F);
      one->gradient.fill_random(40 + i);
      for (std::size_t j = 0; j < sizes[i]; ++j) one->v.set(j, 0.01F * static_cast<float>(1 + j % 17));
      const auto count = static_cast<std::int64_t>(sizes[i]);
      tensors.push_back({one->weight.data(), one->m.data(), one->v.data(), one->gradient.data(),
                         i % 4 == 3 ? nullptr : one->low.data(), count, i % 2 == 0 ? 0.1F : 0.0F});
      for (std::int64_t t = 0; t * kOptimizerTile < count; ++t)
        tiles.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(t)});
      all.push_back(std::move(one));
    }
    device_tensors = std::make_unique<Buffer<AdamWTensor<G>>>(tensors);
    device_tiles = std::make_unique<Buffer<Tile>>(tiles);
  }
  int tile_count() const { return static_cast<int>(tiles.size()); }
  double norm_squared() const {
    double sum = 0;
    for (const auto& one : all)
      for (std::size_t j = 0; j < one->gradient.size(); ++j) sum += one->gradient.at(j) * one->gradient.at(j);
    return sum;
  }
};

const std::vector<std::size_t> kSizes = {1, 3, 4, 4096, 4097, 257, 9001, 64};

/// max_norm 0: no clipping.
AdamWSettings settings(float max_norm) {
  return {0.01F, 0.9F, 0.95F, 1e-8F, 1 / 0.271F, 1 / 0.142625F, 0.5F, max_norm};
}

/// How far weights and moments are from f64, the gradient multiplied by `factor`.
template <class G>
double worst_step(const Parameters<G>& p, const Parameters<G>& before, double factor) {
  double worst = 0;
  for (std::size_t i = 0; i < kSizes.size(); ++i)
    for (std::size_t j = 0; j < kSizes[i]; ++j) {
      const double g = factor * before.all[i]->gradient.at(j);
      const double m = 0.9 * before.all[i]->m.at(j) + 0.1 * g, v = 0.95 * before.all[i]->v.at(j) + 0.05 * g * g;
      double w = before.all[i]->weight.at(j);
      w -= 0.01 * (m / 0.271 / (std::sqrt(v / 0.142625) + 1e-8) + static_cast<double>(p.tensors[i].decay) * w);
      worst = std::max({worst, std::abs(w - p.all[i]->weight.at(j)), std::abs(m - p.all[i]->m.at(j)),
                        std::abs(v - p.all[i]->v.at(j))});
    }
  return worst;
}

/// Whether `low` is the weights, rounded.
template <class Low>
bool is_rounded(const Buffer<Low>& low, const Buffer<float>& weight) {
  for (std::size_t j = 0; j < low.size(); ++j)
    if (low.at(j) != static_cast<double>(static_cast<float>(Low(weight.value(j))))) return false;
  return true;
}

template <class G>
void check_adamw(float max_norm) {
  Parameters<G> p(kSizes), before(kSizes);
  Buffer<float> partial(p.tiles.size()), norm(1);
  gradient_norm_squared(p.device_tensors->data(), p.device_tiles->data(), p.tile_count(), partial.data(), norm.data());
  CHECK(norm.at(0) == doctest::Approx(p.norm_squared()).epsilon(1e-5));
  adamw(p.device_tensors->data(), p.device_tiles->data(), p.tile_count(), settings(max_norm), norm.data());
  const double length = std::sqrt(p.norm_squared()) * 0.5;
  CHECK(worst_step(p, before, 0.5 * (max_norm > 0 && length > max_norm ? max_norm / length : 1)) < 1e-6);
  for (std::size_t i = 0; i < kSizes.size(); ++i)
    if (p.tensors[i].low != nullptr) CHECK(is_rounded(p.all[i]->low, p.all[i]->weight));
}

}  // namespace

TEST_CASE_TEMPLATE("cuda adamw: many ragged tensors in one launch, clipped or not, equal f64", G, float, bf16, f16) {
  under_schedules([] {
    check_adamw<G>(0.0F);
    check_adamw<G>(1.0F);
  });
}

TEST_CASE_TEMPLATE("cuda adamw: a tensor by itself, f32 gradients and a copy in any dtype, equals f64", Low, float,
                   bf16, f16) {
  under_schedules([] {
    Parameters<float> p(kSizes), before(kSizes);
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const AdamWTensor<float>& t = p.tensors[i];
      Buffer<Low> low(kSizes[i], i % 2);
      const bool copies = t.low != nullptr;
      adamw(AdamWTensor<float, Low>{t.weight, t.m, t.v, t.gradient, copies ? low.data() : nullptr, t.count, t.decay},
            settings(0));
      if (copies) CHECK(is_rounded(low, p.all[i]->weight));
    }
    CHECK(worst_step(p, before, 0.5) < 1e-6);
  });
}

TEST_CASE("cuda adamw: a gradient that is not finite changes nothing") {
  Parameters<bf16> p({300}), before({300});
  p.all[0]->gradient.set(7, bf16(INFINITY));
  Buffer<float> partial(1), norm(1);
  gradient_norm_squared(p.device_tensors->data(), p.device_tiles->data(), 1, partial.data(), norm.data());
  adamw(p.device_tensors->data(), p.device_tiles->data(), 1, {0.1F, 0.9F, 0.9F, 1e-8F, 10.0F, 10.0F, 1.0F, 1.0F},
        norm.data());
  for (std::size_t j = 0; j < 300; ++j) {
    CHECK(p.all[0]->weight.at(j) == before.all[0]->weight.at(j));
    CHECK(p.all[0]->m.at(j) == before.all[0]->m.at(j));
  }
}
