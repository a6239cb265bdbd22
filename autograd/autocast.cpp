#include "autograd/autocast.h"

#include <algorithm>
#include <unordered_map>

#include "autograd/op.h"
#include "autograd/ops.h"

namespace trireme {

struct AutocastState {
  struct Cast {
    std::uint64_t version;  // of the leaf that was cast
    Tensor result;
  };
  DType dtype = DType::bf16;
  std::unordered_map<const Node*, Cast> casts;  // of leaves; a result's node keeps its leaf alive
};

namespace {

thread_local AutocastState* active = nullptr;  // of the thread that records: a rank

/// y = a leaf x in another dtype;  dx = dy in the dtype of the leaf's gradient. It saves nothing, so several backwards
/// can go through it.
struct CastOfLeaf : Op {
  static constexpr const char* name = "cast";
  static constexpr bool keeps_f32 = true;
  static constexpr bool saves_nothing = true;
  DType to = DType::f32, from = DType::f32;
  Tensor forward(const Tensor& x) {
    from = x.dtype();
    return cast(x, to);
  }
  Gradients backward(const Tensor& dy) const { return {cast(dy, gradient_dtype(0, from))}; }
};

Tensor cast_leaf(const Tensor& x, AutocastState& state) {
  const auto found = state.casts.find(x.node().get());
  if (found != state.casts.end() && found->second.version == x.version()) return found->second.result;
  CastOfLeaf op;
  op.to = state.dtype;
  const Tensor result = apply(std::move(op), x);
  state.casts[x.node().get()] = {x.version(), result};
  return result;
}

bool is_16_bit(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

Autocast::Autocast(std::optional<DType> dtype) : previous_(active) {
  if (dtype && !is_16_bit(*dtype))
    fail(ExitCode::usage, "autocast", "a dtype of {}; expected bf16 or f16, or nothing to cast nothing", name(*dtype));
  if (!dtype) {
    active = nullptr;
  } else if (active == nullptr || active->dtype != *dtype) {
    own_ = std::make_unique<AutocastState>();
    own_->dtype = *dtype;
    active = own_.get();
  }
}

Autocast::~Autocast() { active = previous_; }

std::optional<DType> Autocast::current() {
  return active == nullptr ? std::nullopt : std::optional<DType>(active->dtype);
}

Tensor for_product(const Tensor& x) {
  if (active == nullptr || !x.defined() || !is_floating(x.dtype()) || x.dtype() == DType::f64) return x;
  if (x.dtype() == active->dtype) return x;
  return grad_enabled() && leaf_of(x) != nullptr ? cast_leaf(x, *active) : cast_to(x, active->dtype);
}

Tensor in_f32(const Tensor& x) {
  return active != nullptr && x.defined() && is_16_bit(x.dtype()) ? cast_to(x, DType::f32) : x;
}

std::pair<Tensor, Tensor> in_common_dtype(const Tensor& a, const Tensor& b) {
  if (active == nullptr || !a.defined() || !b.defined() || a.dtype() == b.dtype()) return {a, b};
  return {in_f32(a), in_f32(b)};
}

std::vector<Tensor> in_common_dtype(const std::vector<Tensor>& tensors) {
  const auto differs = [&](const Tensor& x) {
    return x.defined() && tensors.front().defined() && x.dtype() != tensors.front().dtype();
  };
  if (active == nullptr || std::none_of(tensors.begin(), tensors.end(), differs)) return tensors;
  std::vector<Tensor> result;
  result.reserve(tensors.size());
  for (const Tensor& x : tensors) result.push_back(in_f32(x));
  return result;
}

}  // namespace trireme
