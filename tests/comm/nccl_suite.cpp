// The suite of suite.h between GPUs, one for each process: mpirun -n 4 build/bin/comm_nccl_suite
#include <cstdio>

#include "cuda/runtime/open.h"
#include "parallel/comm/nccl/launch.h"
#include "parallel/comm/verifying_group.h"
#include "tests/comm/patience.h"
#include "tests/comm/suite.h"

using namespace trireme;

namespace {

void run() {
  testing::verify(under_mpi_launcher(), "start this program with mpirun");
  const cuda::FoundDevices found = cuda::find_devices();
  if (!found.problem.empty()) fail(ExitCode::usage, "comm_nccl_suite", "no GPU to use: {}", found.problem);
  cuda::open_device(launched_gpu(static_cast<int>(found.devices.size())));
  const auto host = mpi_world(testing::patience);
  const auto end = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& lost) {
      std::fprintf(stderr, "%s\n", lost.what());
      mpi_abort(static_cast<int>(lost.code()));
    }
  };
  const auto world = gpu_world(host, testing::patience, end);
  testing::check_all(*world, Device::cuda);
  testing::check_same_bits(*host, *world);
  testing::check_subgroups(*verifying(world), Device::cuda);
  const auto fast = gpu_world(host, testing::patience, end, SumOrder::any);
  testing::check_all(*fast, Device::cuda);
  testing::check_same_bits(*host, *fast);
  if (world->rank() == 0) std::puts("comm_nccl_suite: all checks passed");
}

}  // namespace

int main() {
  try {
    run();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    mpi_abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    mpi_abort(1);
  }
}
