// Matrix products by optional libraries, OpenBLAS and oneDNN, to compare our own with.
//
// They are not needed to build: a library is loaded when its product is selected (CBLAS and oneDNN's C interface,
// "Matrix multiplication functions"). It is set to compute on the calling thread alone; our own team splits the work.
// Read next: gemm_blocks.h.
#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>

#include "core/cpu/gemm_blocks.h"

namespace trireme::cpu {
namespace {

/// A shared library, loaded for as long as the process lives.
class Loaded {
 public:
  explicit Loaded(std::initializer_list<const char*> names) {
    for (const char* const name : names) {
      if (handle_ == nullptr) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }
  explicit operator bool() const { return handle_ != nullptr; }

  /// Null if the library has no such function.
  template <class Function>
  Function* find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_ = nullptr;
};

/// An operand as row-major interfaces describe it: its address, whether it is stored transposed, and the distance of
/// the stored rows.
template <class T>
struct Operand {
  const T* data;
  bool transposed;
  std::int64_t leading;
  explicit Operand(const MatrixView& x)
      : data(static_cast<const T*>(x.data)),
        transposed(!(x.column_stride == 1 && x.row_stride >= x.columns)),
        leading(transposed ? x.column_stride : x.row_stride) {}
};

struct OpenBlas {
  enum : int { row_major = 101, plain = 111, turned = 112 };  // CBLAS_ORDER, CBLAS_TRANSPOSE
  template <class T>
  using Gemm = void(int order, int a_turned, int b_turned, int m, int n, int k, T alpha, const T* a, int lda,
                    const T* b, int ldb, T beta, T* c, int ldc);

  Gemm<float>* sgemm = nullptr;
  Gemm<double>* dgemm = nullptr;

  static const OpenBlas& get() {
    static const OpenBlas library;
    return library;
  }

  OpenBlas() {
    setenv("OPENBLAS_NUM_THREADS", "1", 0);  // before it is loaded: else it would start threads that never end
    const Loaded library({"libopenblas.so.0", "libopenblas.so"});
    sgemm = library.find<Gemm<float>>("cblas_sgemm");
    dgemm = library.find<Gemm<double>>("cblas_dgemm");
    if (auto* const set_threads = library.find<void(int)>("openblas_set_num_threads")) set_threads(1);
  }

  bool installed() const { return sgemm != nullptr && dgemm != nullptr; }

  template <class In>
  static constexpr bool takes = false;

  template <class T>
  static void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, double beta) {
    const Operand<T> left(a), right(b);
    const auto call = [&](Gemm<T>* gemm) {
      gemm(row_major, left.transposed ? turned : plain, right.transposed ? turned : plain, static_cast<int>(c.rows),
           static_cast<int>(c.columns), static_cast<int>(a.columns), static_cast<T>(alpha), left.data,
           static_cast<int>(left.leading), right.data, static_cast<int>(right.leading), static_cast<T>(beta),
           static_cast<T*>(c.data), static_cast<int>(c.row_stride));
    };
    if constexpr (std::is_same_v<T, float>) {
      call(get().sgemm);
    } else {
      call(get().dgemm);
    }
  }
};

struct OneDnn {
  using Dim = std::int64_t;
  template <class In>
  using Gemm = int(char a_turned, char b_turned, Dim m, Dim n, Dim k, float alpha, const In* a, Dim lda, const In* b,
                   Dim ldb, float beta, float* c, Dim ldc);  // 0 on success

  Gemm<float>* sgemm = nullptr;
  Gemm<bf16>* bgemm = nullptr;  // not in its manual
  void (*set_threads)(int) = nullptr;

  static const OneDnn& get() {
    static const OneDnn library;
    return library;
  }

  OneDnn() {
    const Loaded library({"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"});
    sgemm = library.find<Gemm<float>>("dnnl_sgemm");
    bgemm = library.find<Gemm<bf16>>("dnnl_gemm_bf16bf16f32");
    set_threads = library.find<void(int)>("omp_set_num_threads");  // of the OpenMP it was built with, if any
  }

  bool installed() const { return sgemm != nullptr; }

  template <class In>
  static constexpr bool takes = std::is_same_v<In, bf16>;

  template <class In>
  static void multiply(const MatrixView& a, const MatrixView& b, const MatrixView& c, double alpha, double beta) {
    if constexpr (std::is_same_v<In, double>) {
      fail(ExitCode::usage, "gemm",
           "oneDNN has no product of f64; expected f32, bf16 or f16; select another: select_gemm(), or --gemm");
    } else {
      if (get().set_threads != nullptr) get().set_threads(1);  // of the calling thread
      const Operand<In> left(a), right(b);
      Gemm<In>* gemm = nullptr;
      if constexpr (std::is_same_v<In, float>) {
        gemm = get().sgemm;
      } else {
        gemm = get().bgemm;
      }
      const int status = gemm == nullptr
                             ? no_such_product
                             : gemm(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', c.rows, c.columns,
                                    a.columns, static_cast<float>(alpha), left.data, left.leading, right.data,
                                    right.leading, static_cast<float>(beta), static_cast<float*>(c.data), c.row_stride);
      if (status == 0) return;
      fail(
          ExitCode::usage, "gemm",
          "oneDNN refuses a product [{}, {}] x [{}, {}] of {} (dnnl_status_t {}); it may have none for this processor; "
          "select another: select_gemm(), or --gemm",
          c.rows, a.columns, a.columns, c.columns, name(dtype_of<In>), status);
    }
  }

 private:
  static constexpr int no_such_product = 3;  // dnnl_unimplemented
};

}  // namespace

const ProductKernel openblas_product = BlockedProduct<OpenBlas>::kernel();
const ProductKernel onednn_product = BlockedProduct<OneDnn>::kernel();

bool has_openblas() { return OpenBlas::get().installed(); }
bool has_onednn() { return OneDnn::get().installed(); }

}  // namespace trireme::cpu
