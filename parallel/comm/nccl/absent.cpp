// nccl_library() in a build without NCCL: throws.
#include "core/error.h"
#include "parallel/comm/nccl/api.h"

namespace trireme::comm {

bool built_with_nccl() { return false; }

std::shared_ptr<NcclApi> nccl_library() {
  fail(ExitCode::usage, "nccl",
       "this program was built without NCCL; expected a build that found nvcc, nccl.h and libnccl.so; install NCCL and "
       "configure with -DTRIREME_CUDA=ON, or stage through the host");
}

}  // namespace trireme::comm
