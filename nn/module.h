// Module: the base of every layer. A layer is called like a function; it holds parameters and other modules.
// Read next: nn/linear.h, the layer most others are made of.
#pragma once

#include "autograd/ops.h"
#include "nn/build.h"
#include "parallel/comm/call_site.h"

namespace trireme::nn {

class Module {
 public:
  explicit Module(const Build& build)
      : mesh_(build.shared_mesh()),
        parallelism_(build.parallelism()),
        run_state_(build.run_state()),
        name_(build.name()) {
    if (build.begins_unit()) use_ = build.use_unit();
  }
  virtual ~Module() = default;
  Module(const Module&) = delete;  // parameters are registered once, by name
  Module& operator=(const Module&) = delete;

  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) {
    const CallSite site(name_);
    return use_.of_unit() ? use_(x, [this](const Tensor& input) { return forward(input); }) : forward(x);
  }
  /// residual + (*this)(x). If the layer ends with a product that can add the residual, this saves a pass over memory.
  Tensor forward_add(const Tensor& residual, const Tensor& x) {
    const CallSite site(name_);
    return use_(x, [&](const Tensor& input) { return do_forward_add(residual, input); });
  }

  const std::string& name() const { return name_; }

 protected:
  const DeviceMesh& mesh() const { return *mesh_; }
  const Parallelism& parallelism() const { return parallelism_; }
  Placement residual() const { return parallelism_.residual(); }  ///< placement of the residual stream on tp
  const RunState& run_state() const { return *run_state_; }
  virtual Tensor do_forward_add(const Tensor& residual, const Tensor& x) { return residual + forward(x); }

 private:
  std::shared_ptr<const DeviceMesh> mesh_;
  Parallelism parallelism_;
  std::shared_ptr<const RunState> run_state_;
  std::string name_;
  UnitUse use_;
};

/// Gain and shift over the last dim. Every tp rank holds both; under sequence parallelism each rank sees only its own
/// positions, so the gradients are partial sums: Build::beside_residual().
class LayerNorm : public Module {
 public:
  LayerNorm(const Build& b, std::int64_t width, bool bias = true, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;  // [.., D] -> [.., D]

 private:
  double eps_;
  ParameterPtr weight_, bias_;  // [D]
};

/// Gain over the last dim, without centring; placed like LayerNorm's.
class RmsNorm : public Module {
 public:
  RmsNorm(const Build& b, std::int64_t width, double eps = 1e-5);
  Tensor forward(const Tensor& x) override;  // [.., D] -> [.., D]

 private:
  double eps_;
  ParameterPtr weight_;  // [D]
};

/// Dropout of the residual stream [B, T, D], whole on every rank or cut by positions: the mask depends on (seed, name,
/// sample, position in the sequence, d) only.
class Dropout : public Module {
 public:
  Dropout(const Build& b, double p) : Module(b), p_(p), seed_(b.seed()) {}
  Tensor forward(const Tensor& x) override;
  bool drops() const { return run_state().training && p_ != 0; }  ///< otherwise forward(x) is x

 private:
  double p_;
  std::uint64_t seed_;
};

}  // namespace trireme::nn
