// Optimizer steps, one pass over the states of many parameters: AdamW (Loshchilov and Hutter 2019, algorithm 2), SGD
// with momentum, and Lion (Chen et al. 2023, algorithm 2).
// Bytes per parameter: AdamW reads 16 and writes 12 (14 with a 16-bit copy); SGD and Lion read 12 and
// write 8.
#include <array>
#include <cmath>

#include "core/cpu/arrays.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/update_scale.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t optimizer_grain = 8192;  // elements worth a thread

// The copy of the new weights that a 16-bit model computes with.
void write_low(const float* weight, const Tensor& low, std::int64_t begin, std::int64_t end) {
  visit_floating(low.dtype(), "optimizer", [&](auto tag) {
    using T = typename decltype(tag)::type;
    map<float>(
        end - begin, [](float w) { return w; }, low.data<T>() + begin, weight + begin);
  });
}

// Scalars are passed by value: the compiler must see that a store to the state cannot change them.
struct AdamW {
  float beta1, beta2, fresh1, fresh2, rate, root_correction, decay, eps, scale;
};

void adamw_range(const AdamW c, const float* gradient, float* weight, float* m, float* v, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = c.scale * gradient[i];
    const float first = c.beta1 * m[i] + c.fresh1 * g;
    const float second = c.beta2 * v[i] + c.fresh2 * g * g;
    const float update = c.rate * first / (std::sqrt(second) * c.root_correction + c.eps);
    m[i] = first;
    v[i] = second;
    weight[i] -= update + c.decay * weight[i];
  }
}

struct Sgd {
  float rate, factor, decay, scale;
  float fresh, blend, fresh_blend;  // of Lion: 1 - factor, beta1, 1 - beta1
};

void sgd_range(const Sgd c, const float* gradient, float* weight, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) weight[i] -= c.rate * (c.scale * gradient[i] + c.decay * weight[i]);
}

void sgd_momentum_range(const Sgd c, const float* gradient, float* weight, float* momentum, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float velocity = c.factor * momentum[i] + (c.scale * gradient[i] + c.decay * weight[i]);
    momentum[i] = velocity;
    weight[i] -= c.rate * velocity;
  }
}

void sgd_nesterov_range(const Sgd c, const float* gradient, float* weight, float* momentum, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float fresh = c.scale * gradient[i] + c.decay * weight[i];
    const float velocity = c.factor * momentum[i] + fresh;
    momentum[i] = velocity;
    weight[i] -= c.rate * (fresh + c.factor * velocity);
  }
}

// The difference of two comparisons, so that NaN, which passes neither, would give 0. The caller has refused it.
float sign(float x) { return static_cast<float>(x > 0) - static_cast<float>(x < 0); }

void lion_range(const Sgd c, const float* gradient, float* weight, float* momentum, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = c.scale * gradient[i];
    const float direction = sign(c.blend * momentum[i] + c.fresh_blend * g);
    momentum[i] = c.factor * momentum[i] + c.fresh * g;
    weight[i] -= c.rate * (direction + c.decay * weight[i]);
  }
}

void one_moment_range(SgdRule rule, const Sgd c, const float* gradient, float* weight, float* momentum,
                      std::int64_t n) {
  switch (rule) {
    case SgdRule::momentum:
      return sgd_momentum_range(c, gradient, weight, momentum, n);
    case SgdRule::nesterov:
      return sgd_nesterov_range(c, gradient, weight, momentum, n);
    case SgdRule::lion:
      return lion_range(c, gradient, weight, momentum, n);
  }
}

/// What multiplies the gradients.
template <class Options>
float scale_in(const Options& options) {
  return options.scale_there.defined() ? *options.scale_there.template data<float>()
                                       : static_cast<float>(options.gradient_scale);
}
template <class Options>
bool is_skipped(const Options& options) {
  return options.scale_there.defined() && std::isnan(scale_in(options));
}

/// The data of a host tensor; null if undefined. It must throw here, before the team starts.
template <class T>
T* host_data(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

void require_low(const Tensor& low) {
  if (!low.defined()) return;
  visit_floating(low.dtype(), "optimizer", [&](auto tag) { (void)low.data<typename decltype(tag)::type>(); });
}

// step(i, begin, length) block by block, each followed by the low copy while the new weights are in L1. The same
// elements of the next block of the tensors `states` of an update are fetched meanwhile: processors fetch ahead by
// themselves within a page only.
template <class Update, class States, class Step>
void for_blocks(std::span<const Update> updates, States&& states, Step&& step) {
  constexpr std::int64_t part = 128;
  std::vector<std::int64_t> counts;
  for (const Update& update : updates) counts.push_back(update.weight.count());
  parallel_arrays(counts, block_elements, optimizer_grain, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += part) {
      for (const float* const state : states(i))
        if (state != nullptr) fetch(state + at + block_elements, part);
      step(i, at, std::min(part, end - at));
    }
    if (updates[i].low.defined()) write_low(updates[i].weight.template data<float>(), updates[i].low, begin, end);
  });
}

}  // namespace

void update_scale(const Tensor& loss, const Tensor& squares, double loss_scale, double max_norm, Tensor& scale) {
  const double norm = std::sqrt(*squares.data<double>()) / loss_scale;
  *scale.data<float>() = static_cast<float>(scale_of_update(*loss.data<double>(), norm, loss_scale, max_norm));
}

void adamw(const AdamWOptions& options, std::span<const AdamWUpdate> updates) {
  const float scale = scale_in(options);
  if (is_skipped(options)) {
    const auto none = [](std::size_t) { return std::array<const float*, 1>{}; };
    return for_blocks(updates, none, [](std::size_t, std::int64_t, std::int64_t) {});
  }
  const auto step = static_cast<double>(options.step);
  struct Work {
    AdamW constants;
    const float* gradient;
    float *weight, *m, *v;
  };
  std::vector<Work> works;
  for (const AdamWUpdate& update : updates) {
    const AdamW constants = {
        .beta1 = static_cast<float>(options.beta1),
        .beta2 = static_cast<float>(options.beta2),
        .fresh1 = static_cast<float>(1 - options.beta1),
        .fresh2 = static_cast<float>(1 - options.beta2),
        .rate = static_cast<float>(options.lr / (1 - std::pow(options.beta1, step))),
        .root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, step))),
        .decay = static_cast<float>(options.lr * update.weight_decay),
        .eps = static_cast<float>(options.eps),
        .scale = scale,
    };
    require_low(update.low);
    works.push_back({constants, host_data<float>(update.gradient), host_data<float>(update.weight),
                     host_data<float>(update.m), host_data<float>(update.v)});
  }
  const auto states = [&](std::size_t i) {
    return std::array<const float*, 4>{works[i].gradient, works[i].weight, works[i].m, works[i].v};
  };
  for_blocks(updates, states, [&](std::size_t i, std::int64_t at, std::int64_t n) {
    const Work& work = works[i];
    adamw_range(work.constants, work.gradient + at, work.weight + at, work.m + at, work.v + at, n);
  });
}

void sgd(const SgdOptions& options, std::span<const SgdUpdate> updates) {
  const float scale = scale_in(options);
  if (is_skipped(options)) {
    const auto none = [](std::size_t) { return std::array<const float*, 1>{}; };
    return for_blocks(updates, none, [](std::size_t, std::int64_t, std::int64_t) {});
  }
  struct Work {
    Sgd constants;
    const float* gradient;
    float *weight, *momentum;  // momentum null: plain
  };
  std::vector<Work> works;
  for (const SgdUpdate& update : updates) {
    const Sgd constants = {.rate = static_cast<float>(options.lr),
                           .factor = static_cast<float>(options.momentum),
                           .decay = static_cast<float>(update.weight_decay),
                           .scale = scale,
                           .fresh = static_cast<float>(1 - options.momentum),
                           .blend = static_cast<float>(options.blend),
                           .fresh_blend = static_cast<float>(1 - options.blend)};
    require(update.momentum.defined() || options.rule == SgdRule::momentum, "sgd",
            "an update by Nesterov's or Lion's rule has no momentum; expected a tensor of the weight's shape");
    require_low(update.low);
    works.push_back({constants, host_data<float>(update.gradient), host_data<float>(update.weight),
                     host_data<float>(update.momentum)});
  }
  const auto states = [&](std::size_t i) {
    return std::array<const float*, 3>{works[i].gradient, works[i].weight, works[i].momentum};
  };
  for_blocks(updates, states, [&](std::size_t i, std::int64_t at, std::int64_t n) {
    const Work& work = works[i];
    if (work.momentum == nullptr) {
      sgd_range(work.constants, work.gradient + at, work.weight + at, n);
    } else {
      one_moment_range(options.rule, work.constants, work.gradient + at, work.weight + at, work.momentum + at, n);
    }
  });
}

}  // namespace trireme::cpu
