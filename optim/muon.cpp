#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/kernels.h"
#include "optim/check_values.h"
#include "optim/whole_matrices.h"

namespace trireme::optim {
namespace {

/// x [S, L] with S <= L, dense, is overwritten.
Tensor iterated(Tensor x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const KernelTable& k = kernels(x.device());
  const std::int64_t rows = x.size(0);
  const auto square = [&] { return Tensor::empty({rows, rows}, x.dtype(), x.device()); };  // [S, S]
  Tensor gram = square(), polynomial = square(), next = Tensor::empty(x.shape(), x.dtype(), x.device());
  for (int i = 0; i < newton_schulz_iterations; ++i) {
    k.gemm(x, view::transpose(x, 0, 1), gram, {});
    copy(gram, polynomial);
    k.gemm(gram, gram, polynomial, {.alpha = c, .beta = b});  // b A + c A A
    copy(x, next);
    k.gemm(polynomial, x, next, {.alpha = 1, .beta = a});
    std::swap(x, next);
  }
  return x;
}

}  // namespace

Tensor orthogonalised(const Tensor& x) {
  require(x.dims() == 2 && (x.dtype() == DType::f32 || x.dtype() == DType::f64), "newton_schulz",
          "expected a matrix of f32 or f64, got {} {}", name(x.dtype()), x.shape());
  if (x.count() == 0) return clone(x);
  const bool tall = x.size(0) > x.size(1);
  Tensor y = clone(tall ? view::transpose(x, 0, 1) : x);
  const KernelTable& k = kernels(y.device());
  constexpr double eps = 1e-7;
  const double norm = std::sqrt(k.sum_squares({&y, 1}).value());
  const Tensor start = clone(y);
  k.axpby(1 / (norm + eps), start, 0, y);
  y = iterated(y);
  return tall ? contiguous(view::transpose(y, 0, 1)) : y;
}

double update_factor(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  return scale == MuonScale::original ? std::sqrt(std::max(1.0, r / c)) : 0.2 * std::sqrt(std::max(r, c));
}

namespace {

std::vector<std::string> names_of_moments(const Parameter& parameter) {
  if (parameter.hidden_matrix) return {"momentum"};
  return {"m", "v"};
}

ShardList hidden_matrices(const ShardList& shards) {
  ShardList matrices;
  for (const ShardPtr& shard : shards)
    if (shard->parameter->hidden_matrix && shard->parameter->requires_grad()) matrices.push_back(shard);
  return matrices;
}

class Muon final : public Optimizer {
 public:
  Muon(const ShardList& shards, const DeviceMesh& mesh, const MuonConfig& config)
      : Optimizer("muon", shards, {"m", "v", "momentum"}, config.adamw.memory, names_of_moments),
        config_(config),
        whole_(hidden_matrices(shards), mesh) {}

  bool takes_scale_on_device() const override { return false; }

 private:
  /// Leaves the updates of matrices where their gradients were.
  void prepare(const GradientScale& scale) override {
    require(!scale.on_device.defined(), "muon",
            "the factor of the gradients is in a tensor; expected a number, as takes_scale_on_device() says");
    if (gradients_ != nullptr) {  // the state changes here, before update() would check it
      gradients_->check_hashes();
      gradients_->forget_hashes();
    }
    std::vector<Tensor> updates;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
      if (slot.frozen || !slot.shard->parameter->hidden_matrix) continue;
      require(slot.shard->parameter->requires_grad(), "muon",
              "{} was frozen after the optimizer was made; expected the parameters that were trained then; make the "
              "optimizer after nn::freeze()",
              slot.shard->parameter->name);
      updates.push_back(gradients_ != nullptr ? gradients_->gradient(i) : gradient_of(*slot.shard));
      if (updates.back().count() == 0) continue;
      Tensor momentum = moment(slot, 0);
      add_to_momentum(momentum, updates.back(), scale.value);
      if (rounding_seed_) set_moment(slot, 0, momentum);
    }
    whole_.apply(updates, [&](const auto&, const Tensor& u) {
      const Tensor o = orthogonalised(u);
      Tensor update = Tensor::empty(o.shape(), o.dtype(), o.device());
      kernels(o.device()).axpby(update_factor(config_.scale, o.size(0), o.size(1)), o, 0, update);
      return update;
    });
  }

  /// `gradient` becomes the update to orthogonalise.
  void add_to_momentum(Tensor& momentum, Tensor& gradient, double scale) const {
    const KernelTable& k = kernels(gradient.device());
    const double mu = config_.momentum, fresh = (1 - mu) * scale;
    k.axpby(fresh, gradient, mu, momentum);
    if (config_.nesterov) {
      k.axpby(mu, momentum, fresh, gradient);
    } else {
      copy(momentum, gradient);
    }
  }

  void apply(std::span<const Operands> operands, double lr, const GradientScale& scale) override {
    std::vector<SgdUpdate> matrices;
    std::vector<AdamWUpdate> others;
    for (const Operands& o : operands) {
      const double decay = o.decay * config_.adamw.weight_decay;
      if (o.parameter->hidden_matrix) {
        matrices.push_back({.gradient = o.gradient, .weight = o.master, .low = o.low_precision, .weight_decay = decay});
      } else {
        others.push_back({.gradient = o.gradient,
                          .weight = o.master,
                          .m = o.moments[0],
                          .v = o.moments[1],
                          .low = o.low_precision,
                          .weight_decay = decay});
      }
    }
    const KernelTable& k = kernels(operands.front().master.device());
    k.sgd({.lr = lr * config_.lr_ratio}, matrices);  // without momentum: w -= lr (update + decay w)
    k.adamw({.lr = lr,
             .beta1 = config_.adamw.beta1,
             .beta2 = config_.adamw.beta2,
             .eps = config_.adamw.eps,
             .gradient_scale = scale.value,
             .step = steps()},
            others);
  }

  MuonConfig config_;
  WholeMatrices whole_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const ShardList& shards, const DeviceMesh& mesh, const MuonConfig& config) {
  check_factor("muon", "momentum", config.momentum);
  check_not_negative("muon", "lr_ratio", config.lr_ratio);
  check_values("muon", config.adamw);
  const bool on_gpu = std::any_of(shards.begin(), shards.end(),
                                  [](const ShardPtr& shard) { return shard->weights.device() != Device::cpu; });
  if (on_gpu && config.adamw.memory == MemoryCategory::offloaded)
    fail(ExitCode::usage, "muon",
         "the optimizer's state is to stay in host memory, and the weights are on a GPU, where Muon's matrix products "
         "run; expected state on the GPU; set AdamWConfig::memory to optimizer (drop "
         "--offload optimizer), or use ZeRO 1 (--zero 1)");
  return std::make_unique<Muon>(shards, mesh, config);
}
std::unique_ptr<Optimizer> make_muon(const ParameterList& parameters, const DeviceMesh& mesh,
                                     const MuonConfig& config) {
  check_parameters("muon", parameters);
  return make_muon(whole_shards(parameters), mesh, config);
}

}  // namespace trireme::optim
