// cuda/runtime/open.h and cuda/selection.h in a build without CUDA.
#include "core/error.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"

namespace trireme::cuda {

Found find_devices() {
  return {
      {},
      "this program was built without CUDA; expected a build that found nvcc; install the CUDA toolkit and configure "
      "with -DTRIREME_CUDA=ON"};
}

void open_device(int) {
  require_device();
  fail(ExitCode::internal, "device", "a build without CUDA cannot open a GPU");
}

std::vector<std::string_view> gemm_names() { return {}; }
void select_gemm(std::string_view) { open_device(0); }
std::string_view selected_gemm() { return {}; }

std::vector<std::string_view> attention_names() { return {}; }
void select_attention(std::string_view) { open_device(0); }
std::string_view selected_attention() { return {}; }

}  // namespace trireme::cuda
