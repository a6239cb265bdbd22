// Optimizer steps of the kernel table, by optimizer.cu, sgd.cu and update_scale.cu of cuda/kernels. A launch serves
// many parameters, whose 16-bit copies, if any, have one dtype, as in a model.
#include <cmath>
#include <vector>

#include "cuda/kernels/optimizer.h"
#include "cuda/kernels/sgd.h"
#include "cuda/kernels/update_scale.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

/// Calls f(TypeTag<Low>{}, updates) for each dtype of copies, with the updates that have it. Updates without a copy
/// count as f32.
template <class Update, class F>
void for_each_low(std::string_view entry, std::span<const Update> updates, const F& f) {
  const auto low_of = [](const Update& update) { return update.low.defined() ? update.low.dtype() : DType::f32; };
  for (const Update& update : updates) visit_training(entry, low_of(update), [](auto) {});  // refuses others
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<const Update*> chosen;
    for (const Update& update : updates)
      if (low_of(update) == dtype) chosen.push_back(&update);
    if (!chosen.empty()) visit_training(entry, dtype, [&](auto tag) { f(tag, chosen); });
  }
}

}  // namespace

void update_scale(const Tensor& loss, const Tensor& squares, double loss_scale, double max_norm, Tensor& scale) {
  constexpr const char* entry = __func__;
  update_scale(dense<double>(entry, loss), dense<double>(entry, squares), loss_scale, max_norm,
               dense<float>(entry, scale), stream());
}

void adamw(const AdamWOptions& options, std::span<const AdamWUpdate> updates) {
  constexpr const char* entry = __func__;
  const auto correction = [&](double beta) {
    return static_cast<float>(1.0 / (1.0 - std::pow(beta, static_cast<double>(options.step))));
  };
  const AdamWSettings settings = {.lr = static_cast<float>(options.lr),
                                  .beta1 = static_cast<float>(options.beta1),
                                  .beta2 = static_cast<float>(options.beta2),
                                  .eps = static_cast<float>(options.eps),
                                  .inverse1 = correction(options.beta1),
                                  .inverse2 = correction(options.beta2),
                                  .gradient_scale = static_cast<float>(options.gradient_scale)};
  const auto* const scale = dense<float>(entry, options.scale_there);
  for_each_low(entry, updates, [&](auto tag, const std::vector<const AdamWUpdate*>& chosen) {
    using Low = typename decltype(tag)::type;
    std::vector<AdamWTensor<float, Low>> tensors;
    for (const AdamWUpdate* update : chosen) {
      tensors.push_back({.weight = dense<float>(entry, update->weight),
                         .m = dense<float>(entry, update->m),
                         .v = dense<float>(entry, update->v),
                         .gradient = dense<float>(entry, update->gradient),
                         .low = dense<Low>(entry, update->low),
                         .count = update->weight.count(),
                         .decay = static_cast<float>(update->weight_decay)});
    }
    adamw<float, Low>(tensors, settings, scale, stream());
  });
}

void sgd(const SgdOptions& options, std::span<const SgdUpdate> updates) {
  constexpr const char* entry = __func__;
  const SgdSettings settings = {.lr = static_cast<float>(options.lr),
                                .momentum = static_cast<float>(options.momentum),
                                .scale = static_cast<float>(options.gradient_scale),
                                .rule = options.rule,
                                .blend = static_cast<float>(options.blend)};
  const auto* const scale = dense<float>(entry, options.scale_there);
  for_each_low(entry, updates, [&](auto tag, const std::vector<const SgdUpdate*>& chosen) {
    using Low = typename decltype(tag)::type;
    std::vector<SgdTensor<Low>> tensors;
    for (const SgdUpdate* update : chosen) {
      require(update->momentum.defined() || options.rule == SgdRule::momentum, entry,
              "an update by Nesterov's or Lion's rule has no momentum; expected a tensor of the weight's shape");
      tensors.push_back({.gradient = dense<float>(entry, update->gradient),
                         .weight = dense<float>(entry, update->weight),
                         .velocity = dense<float>(entry, update->momentum),
                         .low = dense<Low>(entry, update->low),
                         .count = update->weight.count(),
                         .decay = static_cast<float>(update->weight_decay)});
    }
    sgd<Low>(tensors, settings, scale, stream());
  });
}

}  // namespace trireme::cuda
