// cuda/implementations.h and cuda/selection.h: the tables, the names, and the choice.
#include "cuda/implementations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "core/error.h"
#include "cuda/libraries/libraries.h"
#include "cuda/selection.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

/// A hint about a name that this build does not have.
std::string_view absent(std::string_view name) {
  const bool missing = (name == "cublaslt" && !has_cublaslt) || (name == "cudnn" && !has_cudnn);
  return missing ? " (this build was configured without that library)" : "";
}

/// What is selected for one family of calls.
class Selection {
 public:
  constexpr Selection(const char* flag, std::span<const std::string_view> names)
      : flag_(flag), names_(names), selected_(0) {}
  std::vector<std::string_view> names() const { return {names_.begin(), names_.end()}; }
  std::string_view selected() const { return names_[selected_]; }
  /// True if one implementation was selected by name; it must take every call.
  bool by_name() const { return selected_ > 1; }
  bool allows(std::string_view name, bool library) const {
    if (by_name()) return name == selected();
    return selected_ == 0 || !library;
  }
  const char* flag() const { return flag_; }
  void select(std::string_view name) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end())
      fail(ExitCode::usage, "cuda", "unknown --{} '{}'{}; expected one of: {}", flag_, name, absent(name),
           fmt::join(names_, ", "));
    selected_ = static_cast<std::size_t>(found - names_.begin());
  }

 private:
  const char* flag_;
  std::span<const std::string_view> names_;
  std::atomic<std::size_t> selected_;
};

// "auto" and "trireme" come first, and NVIDIA's libraries, if the build has them, last.
constexpr auto gemms = std::to_array<std::string_view>({
  "auto", "trireme", "sm90", "sm80",
#if defined(TRIREME_HAS_CUBLASLT)
      "cublaslt",
#endif
});
constexpr auto attentions = std::to_array<std::string_view>({
  "auto", "trireme", "sm90", "sm80",
#if defined(TRIREME_HAS_CUDNN)
      "cudnn",
#endif
});
Selection gemm_selection("gemm", gemms), attention_selection("attention", attentions);

// ---- the device -----------------------------------------------------------------------------------------------------

/// Code for sm_90a runs only on 9.0; code for sm_80 on all later devices too.
bool device_runs(int major) {
  const int device = device_limits().major;
  return major == 9 ? device == 9 : device >= major;
}

/// The architecture for which kernels are chosen if none is named.
int device_major() {
#if defined(__CUDACC__)
  return device_limits().major;
#else
  return 8;  // of the kernels that emulation runs in the least time
#endif
}

// ---- products -------------------------------------------------------------------------------------------------------

template <class Call>
std::string takes_all(const Call&) {
  return {};
}

/// TMA reads rows that begin at multiples of 16 bytes.
std::string tma_problem(const char* name, const void* data, std::int64_t pitch, std::int64_t stride) {
  const std::uintptr_t excess = reinterpret_cast<std::uintptr_t>(data) % 16;
  if (excess != 0) return fmt::format("{} begins {} bytes after a multiple of 16", name, excess);
  if (pitch % 8 != 0 || pitch <= 0)
    return fmt::format("rows of {} are {} elements apart, not a positive multiple of 8", name, pitch);
  if (stride % 8 != 0 || stride < 0)
    return fmt::format("matrices of {} are {} elements apart, not a multiple of 8", name, stride);
  return {};
}

template <class T, class Out>
std::string sm80_problem(const Gemm<T, Out>& p) {
  return p.row_sums == nullptr ? "" : "row sums, which it does not give";
}
template <class T, class Out>
std::string sm90_problem(const Gemm<T, Out>& p) {
  if (const char* const problem = row_sums_problem(p)) return problem;
  if (p.k < 1) return fmt::format("k is {}; it needs at least 1", p.k);
  const std::string of_a = tma_problem("a", p.a, p.a_pitch, p.a_stride);
  return of_a.empty() ? tma_problem("b", p.b, p.b_pitch, p.b_stride) : of_a;
}

// The library comes last. So "auto" never reaches it, because sm80 takes every call that it takes.
template <class T, class Out>
constexpr auto products = std::to_array<Implementation<Gemm<T, Out>>>({
  {"sm90", 9, &sm90_problem<T, Out>,
   [](const Gemm<T, Out>& p, Stream stream) {
     Tensor partials;
     gemm_sm90(p, stream, Tile90::automatic, [&](std::int64_t floats) {
       partials = workspace({floats}, DType::f32);
       return static_cast<float*>(partials.device_address());
     });
   }},
      {"sm80", 8, &sm80_problem<T, Out>, &gemm_sm80<T, Out>},
#if defined(TRIREME_HAS_CUBLASLT)
      {"cublaslt", 8, &cublaslt_cannot<T, Out>, &gemm_cublaslt<T, Out>, true},
#endif
});

/// As sm90_problem; b has a matrix for each group, except where groups cut the sum. Zero rows are allowed.
template <class T, class Out>
std::string grouped_sm90_problem(const GroupedGemm<T, Out>& g) {
  const Gemm<T, Out>& p = g.product;
  if (p.k < 1 && p.form != Form::tn) return fmt::format("k is {}; it needs at least 1", p.k);
  const std::string of_a = tma_problem("a", p.a, p.a_pitch, 0);
  return of_a.empty() ? tma_problem("b", p.b, p.b_pitch, p.b_stride) : of_a;
}

template <class T, class Out>
constexpr auto grouped_products = std::to_array<Implementation<GroupedGemm<T, Out>>>(
    {{"sm90", 9, &grouped_sm90_problem<T, Out>,
      [](const GroupedGemm<T, Out>& p, Stream stream) { grouped_gemm_sm90(p, stream); }},
     {"sm80", 8, &takes_all<GroupedGemm<T, Out>>, &grouped_gemm_sm80<T, Out>}});

// ---- attention ------------------------------------------------------------------------------------------------------

template <class T>
std::string sm80_problem(const AttentionForward<T>& p) {
  if (p.head_dim % 8 == 0 && p.head_dim <= 128) return {};
  return fmt::format("head dims of {}; it takes multiples of 8 up to 128", p.head_dim);
}
template <class T>
std::string sm80_backward_problem(const AttentionBackward<T>& p) {
  return sm80_problem(p.forward);
}

/// One token's heads must not lie over the next one's: TMA reads each token as a row.
inline std::string row_problem(const char* name, std::int64_t pitch, std::int64_t values) {
  if (pitch >= values) return {};
  return fmt::format("tokens of {} are {} elements apart, and one has {}", name, pitch, values);
}
template <class T>
std::string sm90_forward_problem(const AttentionForward<T>& p) {
  if (!(p.scale > 0)) return fmt::format("a scale of {}; it needs one above 0", p.scale);
  std::string problem = sm80_problem(p);
  if (problem.empty()) problem = row_problem("q", p.q_pitch, std::int64_t{p.heads} * p.head_dim);
  if (problem.empty()) problem = row_problem("k and v", p.kv_pitch, std::int64_t{p.kv_heads} * p.head_dim);
  return problem;
}
template <class T>
std::string sm90_backward_problem(const AttentionBackward<T>& p) {
  const std::string problem = sm90_forward_problem(p.forward);
  return problem.empty() ? row_problem("dout", p.dout_pitch, std::int64_t{p.forward.heads} * p.forward.head_dim)
                         : problem;
}

// As for products, the library comes last. So "auto" never reaches it, because sm80 takes every call that it takes.
template <class T>
constexpr auto forwards = std::to_array<Implementation<AttentionForward<T>>>({
  {"sm90", 9, &sm90_forward_problem<T>, &attention_forward_sm90<T>},
      {"sm80", 8, &sm80_problem<T>, &attention_forward_sm80<T>},
#if defined(TRIREME_HAS_CUDNN)
      {"cudnn", 8, &cudnn_attention_cannot<T>, &cudnn_attention_forward<T>, true},
#endif
});
// As for products, the library comes last. So "auto" never reaches it, because sm80 takes every call that it takes.
template <class T>
constexpr auto backwards = std::to_array<Implementation<AttentionBackward<T>>>({
  {"sm90", 9, &sm90_backward_problem<T>, &attention_backward_sm90<T>},
      {"sm80", 8, &sm80_backward_problem<T>, &attention_backward_sm80<T>},
#if defined(TRIREME_HAS_CUDNN)
      {"cudnn", 8, &cudnn_attention_cannot<T>, &cudnn_attention_backward<T>, true},
#endif
});

// ---- the choice -----------------------------------------------------------------------------------------------------

template <class T, class Out>
std::span<const Implementation<Gemm<T, Out>>> rows_of(const Gemm<T, Out>*) {
  return products<T, Out>;
}
template <class T, class Out>
std::span<const Implementation<GroupedGemm<T, Out>>> rows_of(const GroupedGemm<T, Out>*) {
  return grouped_products<T, Out>;
}
template <class T>
std::span<const Implementation<AttentionForward<T>>> rows_of(const AttentionForward<T>*) {
  return forwards<T>;
}
template <class T>
std::span<const Implementation<AttentionBackward<T>>> rows_of(const AttentionBackward<T>*) {
  return backwards<T>;
}

template <class T, class Out>
const Selection& selection_of(const Gemm<T, Out>*) {
  return gemm_selection;
}
template <class T, class Out>
const Selection& selection_of(const GroupedGemm<T, Out>*) {
  return gemm_selection;
}
template <class Call>
const Selection& selection_of(const Call*) {
  return attention_selection;
}

}  // namespace

template <class Call>
std::span<const Implementation<Call>> implementations() {
  return rows_of(static_cast<const Call*>(nullptr));
}

template <class Call>
bool selection_has() {
  const Selection& selection = selection_of(static_cast<const Call*>(nullptr));
  const auto rows = implementations<Call>();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const auto& each) { return selection.allows(each.name, each.library); });
}

/// The first selected implementation that can take the call; `problem`: why the last one tried cannot.
template <class Call>
const Implementation<Call>* first_taking(const Call& call, std::string& problem) {
  const Selection& selection = selection_of(&call);
  for (const auto& each : implementations<Call>()) {
    if (!selection.allows(each.name, each.library)) continue;
    if (selection.by_name()) {
      problem = device_runs(each.major) ? each.problem(call)
                                        : fmt::format("it runs only on compute capability {}.0; this GPU's is {}.x",
                                                      each.major, device_major());
    } else {
      if (each.major > device_major() || !device_runs(each.major)) continue;
      problem = each.problem(call);
    }
    if (problem.empty()) return &each;
  }
  if (problem.empty()) problem = "it has no such kernel";
  return nullptr;
}

template <class Call>
const Implementation<Call>* implementation_taking(const Call& call) {
  std::string problem;
  return first_taking(call, problem);
}

template <class Call>
const Implementation<Call>& implementation_for(const Call& call) {
  std::string problem;
  if (const auto* const found = first_taking(call, problem)) return *found;
  const Selection& selection = selection_of(&call);
  const std::string other = selection.by_name() ? fmt::format("use --{} auto", selection.flag()) : "use --device cpu";
  fail(ExitCode::usage, "cuda", "--{} {} cannot take a call: {}; change the shape, or {}", selection.flag(),
       selection.selected(), problem, other);
}

#define TRIREME_INSTANTIATE(...)                                                         \
  template std::span<const Implementation<__VA_ARGS__>> implementations();               \
  template bool selection_has<__VA_ARGS__>();                                            \
  template const Implementation<__VA_ARGS__>* implementation_taking(const __VA_ARGS__&); \
  template const Implementation<__VA_ARGS__>& implementation_for(const __VA_ARGS__&);
TRIREME_INSTANTIATE(Gemm<bf16, bf16>)
TRIREME_INSTANTIATE(GroupedGemm<bf16, bf16>)
TRIREME_INSTANTIATE(Gemm<bf16, float>)
TRIREME_INSTANTIATE(GroupedGemm<bf16, float>)
TRIREME_INSTANTIATE(Gemm<f16, f16>)
TRIREME_INSTANTIATE(GroupedGemm<f16, f16>)
TRIREME_INSTANTIATE(Gemm<f16, float>)
TRIREME_INSTANTIATE(GroupedGemm<f16, float>)
TRIREME_INSTANTIATE(AttentionForward<bf16>)
TRIREME_INSTANTIATE(AttentionForward<f16>)
TRIREME_INSTANTIATE(AttentionBackward<bf16>)
TRIREME_INSTANTIATE(AttentionBackward<f16>)
#undef TRIREME_INSTANTIATE

std::vector<std::string_view> gemm_names() { return gemm_selection.names(); }
void select_gemm(std::string_view name) { gemm_selection.select(name); }
std::string_view selected_gemm() { return gemm_selection.selected(); }

std::vector<std::string_view> attention_names() { return attention_selection.names(); }
void select_attention(std::string_view name) { attention_selection.select(name); }
std::string_view selected_attention() { return attention_selection.selected(); }

Absent absent_gemms() {
  if (has_cublaslt) return {};
  return {
      {"cublaslt",
       "this program was built without cuBLASLt; expected a build that found it; install it and configure again, or "
       "use --gemm auto"}};
}
Absent absent_attentions() {
  if (has_cudnn) return {};
  return {
      {"cudnn",
       "this program was built without cuDNN; expected a build that found it; install it and configure again, or use "
       "--attention auto"}};
}

}  // namespace trireme::cuda
