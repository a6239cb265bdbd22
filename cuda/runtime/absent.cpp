// cuda/runtime/open.h in a build without CUDA.
#include "core/error.h"
#include "cuda/runtime/open.h"

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

}  // namespace trireme::cuda
