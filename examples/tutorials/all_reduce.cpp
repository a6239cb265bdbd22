// Tutorial 3: four ranks, and the collective that data parallelism uses.
//
//   build/bin/tutorial_all_reduce
//
// Each rank is a thread with its own tensors; ranks communicate through a process group. Under mpirun, the same calls
// work between processes. Read next: parallel/mesh/redistribute.h, where communication gets a backward.
#include <fmt/core.h>

#include <atomic>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "parallel/mesh/redistribute.h"
#include "train/program/program.h"

using namespace trireme;

namespace {

int tutorial() {
  constexpr int ranks = 4;
  std::atomic<int> wrong = 0;
  run_thread_ranks(ranks, 1, std::chrono::seconds(30), [&](const std::shared_ptr<ProcessGroup>& world) {
    // Every rank contributes its number plus one; every rank gets the sum.
    Tensor x = Tensor::full({3}, world->rank() + 1);
    Work work = world->all_reduce(x);  // in progress: x may not be used until wait() returns
    work.wait();
    if (x.span<float>()[0] != 1 + 2 + 3 + 4) ++wrong;

    // Data parallelism in four lines: each rank has the same weight and different data. The sum of the ranks' gradients
    // is the gradient of the whole batch.
    Tensor w = Tensor::full({1}, 2.0);
    require_grad(w);
    backward(square(w * Tensor::full({1}, world->rank() + 1)));  // this rank's part: (w r)^2, gradient 2 w r^2
    world->all_reduce(grad(w)).wait();
    if (grad(w).item() != 2 * 2.0 * (1 + 4 + 9 + 16)) ++wrong;

    // A mesh names the axes along which ranks communicate. Here 2 x 2: data and tensor parallel.
    const DeviceMesh mesh(world, parse_mesh("dp=2,tp=2", ranks));
    world->barrier();
    if (world->rank() == 0)
      fmt::print("sum over {} ranks: {}; gradient of the whole batch: {}\n", ranks, x.span<float>()[0], grad(w).item());
    for (int r = 0; r < ranks; ++r) {
      if (r == world->rank()) {
        fmt::print("{}: dp group {} {}, tp group {} {}\n", mesh.where(), mesh.group(Axis::dp).members()[0],
                   mesh.group(Axis::dp).members()[1], mesh.group(Axis::tp).members()[0],
                   mesh.group(Axis::tp).members()[1]);
      }
      world->barrier();
    }
  });
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main() { return run_program(tutorial); }  // prints any error
