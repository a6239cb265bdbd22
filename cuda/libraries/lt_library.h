// cuBLASLt's functions, loaded from the library when the first product needs them. Linked normally, the library would
// cost every program 0.2 s and 200 MB at its start, even one that never uses it.
//
//   TRIREME_CUBLASLT(lt().cublasLtMatrixLayoutCreate(&layout, type, rows, columns, ld), problem);
//
// Read next: cuda/libraries/cublaslt.cpp.
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>

#include <string>
#include <string_view>

#include "core/error.h"
#include "cuda/libraries/lt_problem.h"

// clang-format off
#define TRIREME_LT_FUNCTIONS(each) \
  each(cublasLtGetVersion) \
  each(cublasLtGetStatusName) \
  each(cublasLtGetStatusString) \
  each(cublasLtCreate) \
  each(cublasLtMatmul) \
  each(cublasLtMatmulAlgoGetHeuristic) \
  each(cublasLtMatrixLayoutCreate) \
  each(cublasLtMatrixLayoutDestroy) \
  each(cublasLtMatrixLayoutSetAttribute) \
  each(cublasLtMatrixLayoutGetAttribute) \
  each(cublasLtMatmulDescCreate) \
  each(cublasLtMatmulDescDestroy) \
  each(cublasLtMatmulDescSetAttribute) \
  each(cublasLtMatmulDescGetAttribute) \
  each(cublasLtMatmulPreferenceCreate) \
  each(cublasLtMatmulPreferenceDestroy) \
  each(cublasLtMatmulPreferenceSetAttribute)
// clang-format on

namespace trireme::cuda {

/// The types of the members are those of the header, so a call is checked as if it were linked.
struct LtLibrary {
  void* library = nullptr;
#define TRIREME_LT(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): it declares
  TRIREME_LT_FUNCTIONS(TRIREME_LT)
#undef TRIREME_LT
};

/// TRIREME_CUBLASLT_FILE is the library that CMake found, with the header's version. If it is gone, tries a library of
/// that name in the loader's paths.
inline const LtLibrary& lt() {
  static const LtLibrary functions = [] {
    LtLibrary f{};
    const std::string path = fmt::format("{}.{}", TRIREME_CUBLASLT_FILE, CUBLAS_VER_MAJOR);
    f.library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (f.library == nullptr) f.library = dlopen(path.c_str() + path.rfind('/') + 1, RTLD_LAZY | RTLD_LOCAL);
    if (f.library == nullptr)
      fail(ExitCode::usage, "gemm", "cuBLASLt cannot be loaded: {}; expected {}; choose another --gemm", dlerror(),
           path);
    const auto find = [&]<class Function>(Function& function, const char* name) {
      function = reinterpret_cast<Function>(dlsym(f.library, name));
      if (function == nullptr)
        fail(ExitCode::usage, "gemm", "{} has no {}; expected the version that Trireme was built with, {}", path, name,
             CUBLAS_VERSION);
    };
#define TRIREME_LT(name) find(f.name, #name);
    TRIREME_LT_FUNCTIONS(TRIREME_LT)
#undef TRIREME_LT
    return f;
  }();
  return functions;
}

/// Throws unless `status` is success, with the call, the place and the problem.
inline void check_lt(cublasStatus_t status, std::string_view call, const char* file, int line,
                     const LtProblem& problem) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  call.remove_prefix(call.starts_with("lt().") ? 5 : 0);
  const bool transient = status == CUBLAS_STATUS_ALLOC_FAILED;
  fail(transient ? ExitCode::retryable : ExitCode::internal, call.substr(0, call.find('(')),
       "{} ({}); {}, at {}:{}, in cuBLASLt {}; choose another --gemm", lt().cublasLtGetStatusString(status),
       lt().cublasLtGetStatusName(status), to_string(problem), file, line, lt().cublasLtGetVersion());
}

}  // namespace trireme::cuda

#define TRIREME_CUBLASLT(call, problem) ::trireme::cuda::check_lt((call), #call, __FILE__, __LINE__, problem)
