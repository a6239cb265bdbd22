// Implements cuda/libraries/lt_run.h with cuBLASLt. (cuBLAS documentation, "Using the cuBLASLt API"; NVIDIA.)
//
// There are three kinds of state: a handle per GPU; an algorithm and the layouts per problem, which never change; and
// 32 MiB of workspace per stream. The description of a product holds its pointers, so each call makes its own: threads
// share no writable state.
// Read next: cuda/libraries/lt_problem.h.
#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>

#include "core/device_work.h"
#include "core/memory.h"
#include "cuda/libraries/lt_library.h"
#include "cuda/libraries/lt_run.h"
#include "cuda/runtime/check.h"

namespace trireme::cuda {
namespace {

cudaDataType_t library_type(LtType type) {
  return type == LtType::f32 ? CUDA_R_32F : type == LtType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

cublasLtEpilogue_t library_epilogue(LtEpilogue epilogue) {
  switch (epilogue) {
    case LtEpilogue::none:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case LtEpilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case LtEpilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU;
    case LtEpilogue::gelu_bias:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case LtEpilogue::gelu_aux:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case LtEpilogue::gelu_aux_bias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case LtEpilogue::dgelu:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  fail(ExitCode::internal, "gemm", "epilogue {}; expected one of LtEpilogue", static_cast<int>(epilogue));
}

/// Where a matrix lies: shape, leading dimension, batch.
class Layout {
 public:
  Layout(const LtMatrix& matrix, LtType type, const LtProblem& problem) : Layout() {
    TRIREME_CUBLASLT(
        lt().cublasLtMatrixLayoutCreate(&layout_, library_type(type), static_cast<std::uint64_t>(matrix.rows),
                                        static_cast<std::uint64_t>(matrix.columns), matrix.ld),
        problem);
    const std::int32_t batch = problem.batch;
    TRIREME_CUBLASLT(
        lt().cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)),
        problem);
    TRIREME_CUBLASLT(lt().cublasLtMatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                           &matrix.stride, sizeof(matrix.stride)),
                     problem);
  }
  ~Layout() {
    if (layout_ != nullptr) lt().cublasLtMatrixLayoutDestroy(layout_);
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  Layout() = default;  // delegated to, so that the destructor also runs if a call fails
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// The description of a product: types, transpositions, epilogue and its pointers.
class Description {
 public:
  explicit Description(const LtCall& call) : Description() {
    const LtProblem& problem = call.problem;
    TRIREME_CUBLASLT(lt().cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F), problem);
    const auto transposition = [](bool transposed) { return std::int32_t{transposed ? CUBLAS_OP_T : CUBLAS_OP_N}; };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposition(problem.transpose_a), problem);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transposition(problem.transpose_b), problem);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{library_epilogue(problem.epilogue)}, problem);
    const std::int32_t type = library_type(problem.out);
    if (adds_bias(problem.epilogue)) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias, problem);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type, problem);
    }
    if (uses_aux(problem.epilogue)) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux, problem);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, problem.aux_ld, problem);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, problem.aux_stride, problem);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type, problem);
    }
  }
  ~Description() {
    if (description_ != nullptr) lt().cublasLtMatmulDescDestroy(description_);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  cublasLtMatmulDesc_t get() const { return description_; }

 private:
  Description() = default;
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value, const LtProblem& problem) {
    TRIREME_CUBLASLT(lt().cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)), problem);
  }

  cublasLtMatmulDesc_t description_ = nullptr;
};

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

/// The constraints of the search for an algorithm.
class Preference {
 public:
  explicit Preference(const LtProblem& problem) : Preference() {
    TRIREME_CUBLASLT(lt().cublasLtMatmulPreferenceCreate(&preference_), problem);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace}, problem);
    // If K is split: partial sums in f32, added in a separate step. The other schemes round to the output's type in
    // between.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}, problem);
    const auto bytes = [](const LtMatrix& matrix) { return static_cast<std::uint32_t>(matrix.alignment); };
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(problem.a), problem);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(problem.b), problem);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(problem.c), problem);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(problem.d), problem);
  }
  ~Preference() {
    if (preference_ != nullptr) lt().cublasLtMatmulPreferenceDestroy(preference_);
  }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  Preference() = default;
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value, const LtProblem& problem) {
    TRIREME_CUBLASLT(lt().cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)), problem);
  }

  cublasLtMatmulPreference_t preference_ = nullptr;
};

/// The layouts of a problem and the algorithm for it.
struct Plan {
  Layout a, b, c, d;
  cublasLtMatmulAlgo_t algorithm{};

  explicit Plan(const LtProblem& p) : a(p.a, p.in, p), b(p.b, p.in, p), c(p.c, p.out, p), d(p.d, p.out, p) {}
  Plan(cublasLtHandle_t handle, const LtCall& call) : Plan(call.problem) {
    const LtProblem& problem = call.problem;
    const Description description(call);  // with its pointers, whose alignment the library checks
    const Preference preference(problem);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    TRIREME_CUBLASLT(lt().cublasLtMatmulAlgoGetHeuristic(handle, description.get(), a.get(), b.get(), c.get(), d.get(),
                                                         preference.get(), 1, &result, &found),
                     problem);
    if (found == 0)
      fail(ExitCode::usage, "gemm", "cuBLASLt {} has no algorithm for {}; choose another --gemm",
           lt().cublasLtGetVersion(), to_string(problem));
    TRIREME_CUBLASLT(result.state, problem);
    algorithm = result.algo;
  }
};

/// The state of one GPU. Never destroyed: at program exit the driver may be gone before its destructor runs.
class Context {
 public:
  /// Of the calling thread's GPU.
  static Context& current(const LtProblem& problem) {
    int device = 0;
    TRIREME_CUDA(cudaGetDevice(&device));
    static std::mutex mutex;
    static auto& contexts = *new std::map<int, Context>();
    const std::scoped_lock lock(mutex);
    Context& context = contexts[device];
    if (context.handle_ == nullptr) TRIREME_CUBLASLT(lt().cublasLtCreate(&context.handle_), problem);
    return context;
  }

  cublasLtHandle_t handle() const { return handle_; }

  /// A search is slow; it runs under the lock, so that other ranks do not repeat it.
  const Plan& plan(const LtCall& call) {
    const std::scoped_lock lock(mutex_);
    std::unique_ptr<Plan>& plan = plans_[call.problem];
    if (plan == nullptr) plan = std::make_unique<Plan>(handle_, call);
    return *plan;
  }

  /// Memory for one product at a time, because the products of a stream follow one another.
  void* workspace(void* stream) {
    const std::scoped_lock lock(mutex_);
    auto& block = workspaces_[stream];
    if (block == nullptr)
      block = std::make_unique<MemoryPool::Block>(MemoryPool::current()->on(Device::cuda), kWorkspace,
                                                  MemoryCategory::workspace);
    return block->data();
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<LtProblem, std::unique_ptr<Plan>> plans_;
  std::map<void*, std::unique_ptr<MemoryPool::Block>> workspaces_;
};

/// Reads one attribute of a layout or a description back from the library.
template <class Value, class Get, class Descriptor, class Attribute>
Value read(Get&& get, Descriptor descriptor, Attribute attribute, const LtProblem& problem) {
  Value value{};
  std::size_t written = 0;
  TRIREME_CUBLASLT(get(descriptor, attribute, &value, sizeof(value), &written), problem);
  require(written == sizeof(value), "gemm", "attribute {} has {} bytes; expected {}", static_cast<int>(attribute),
          written, sizeof(value));
  return value;
}

LtMatrix read_layout(const Layout& layout, const LtProblem& problem) {
  const auto number = [&](cublasLtMatrixLayoutAttribute_t attribute) {
    return read<std::int64_t>(lt().cublasLtMatrixLayoutGetAttribute, layout.get(), attribute, problem);
  };
  return {.rows = number(CUBLASLT_MATRIX_LAYOUT_ROWS),
          .columns = number(CUBLASLT_MATRIX_LAYOUT_COLS),
          .ld = number(CUBLASLT_MATRIX_LAYOUT_LD),
          .stride = number(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)};
}

}  // namespace

void run_cublaslt(const LtCall& call, void* stream) {
  Context& context = Context::current(call.problem);
  const Plan& plan = context.plan(call);
  const Description description(call);
  ++device_work().launches;
  TRIREME_CUBLASLT(
      lt().cublasLtMatmul(context.handle(), description.get(), &call.alpha, call.a, plan.a.get(), call.b, plan.b.get(),
                          &call.beta, call.c, plan.c.get(), call.d, plan.d.get(), &plan.algorithm,
                          context.workspace(stream), kWorkspace, static_cast<cudaStream_t>(stream)),
      call.problem);
}

LtReadBack cublaslt_read_back(const LtCall& call) {
  const LtProblem& problem = call.problem;
  const Plan plan(problem);
  const Description description(call);
  const Preference accepted(problem);
  const auto get = [&]<class Value>(cublasLtMatmulDescAttributes_t attribute, Value) {
    return read<Value>(lt().cublasLtMatmulDescGetAttribute, description.get(), attribute, problem);
  };
  LtReadBack back{.a = read_layout(plan.a, problem),
                  .b = read_layout(plan.b, problem),
                  .c = read_layout(plan.c, problem),
                  .d = read_layout(plan.d, problem),
                  .batch = read<std::int32_t>(lt().cublasLtMatrixLayoutGetAttribute, plan.d.get(),
                                              CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, problem),
                  .transpose_a = get(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{}) == CUBLAS_OP_T,
                  .transpose_b = get(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{}) == CUBLAS_OP_T,
                  .epilogue = get(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t{})};
  back.bias = get(CUBLASLT_MATMUL_DESC_BIAS_POINTER, back.bias);
  back.aux = get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, back.aux);
  back.aux_ld = get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{});
  back.aux_stride = get(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, std::int64_t{});
  return back;
}

}  // namespace trireme::cuda
