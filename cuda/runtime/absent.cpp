// cuda/runtime/open.h, cuda/selection.h and cuda/choices.h in a build without CUDA.
#include "core/error.h"
#include "cuda/choices.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"

namespace trireme::cuda {

FoundDevices find_devices() {
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

Absent absent_gemms() { return {{"sm90", ""}, {"sm80", ""}, {"cublaslt", ""}}; }
Absent absent_attentions() { return {{"sm90", ""}, {"sm80", ""}, {"cudnn", ""}}; }

LayerChoice layer_choice(DType, std::int64_t, std::int64_t, std::int64_t) { return {}; }
AttentionChoice attention_choice(DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return {}; }

}  // namespace trireme::cuda
