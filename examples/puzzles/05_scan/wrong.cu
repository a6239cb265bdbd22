// Puzzle 5: wrong kernels, most of which give the right sums for short rows or under one order of the threads, each with a
// part of the message that it must get. Do not read this before your own answer: what is wrong shows what is right.
#include <bit>

#include "examples/puzzles/05_scan/puzzle.h"

namespace trireme::puzzles::scan {
namespace {

using Kernel = void(const float*, float*, int);

Answer wrong(std::string name, Kernel* scan, std::string expected) {
  return answer(std::move(name),
                {scan, [](int threads) -> int { return std::bit_width(static_cast<unsigned>(threads)) - 1; },
                 [](int threads) -> int { return threads * (std::bit_width(static_cast<unsigned>(threads)) - 2) + 1; }},
                std::move(expected));
}

__device__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ const float* row_of(const float* x, int columns) { return x + static_cast<long>(blockIdx.x) * columns; }
__device__ float* row_of(float* y, int columns) { return y + static_cast<long>(blockIdx.x) * columns; }
__device__ float load(const float* x, int column, int columns) {
  return column < columns ? row_of(x, columns)[column] : 0.0F;
}
__device__ void store(float* y, int column, int columns, float value) {
  if (column < columns) row_of(y, columns)[column] = value;
}
/// The right rounds, of what is in the slab. Ends with a barrier.
__device__ float rounds_of(float* slab, float own) {
  slab[thread()] = own;
  sync_threads();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    if (thread() >= distance) own += slab[thread() - distance];
    sync_threads();
    slab[thread()] = own;
    sync_threads();
  }
  return own;
}

/// In place, with one barrier a round: a thread may read what its neighbour has already raised.
__global__ void one_barrier(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    slab[thread()] = load(x, first + thread(), columns);
    sync_threads();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      if (thread() >= distance) slab[thread()] += slab[thread() - distance];
      sync_threads();
    }
    store(y, first + thread(), columns, before + slab[thread()]);
    before += slab[kThreads - 1];
    sync_threads();
  }
}
const Registered a1(wrong("one barrier a round", one_barrier, "nothing orders the two"));

/// The next part of the row overwrites the slab while some threads still read the sum of this one.
__global__ void no_barrier_between_parts(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    const float own = rounds_of(slab, load(x, first + thread(), columns));
    store(y, first + thread(), columns, before + own);
    before += slab[kThreads - 1];
  }
}
const Registered a2(wrong("no barrier between parts", no_barrier_between_parts, "nothing orders the two"));

/// Each part begins at zero again.
__global__ void forgets(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  for (int first = 0; first < columns; first += kThreads) {
    const float own = rounds_of(slab, load(x, first + thread(), columns));
    store(y, first + thread(), columns, own);
    sync_threads();
  }
}
const Registered a3(wrong("each part begins at zero", forgets, "x [3, 129]: y: "));

/// The sum of the part is kept from its last thread's place, also where the row ends before it and nothing is there.
__global__ void unwritten(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    const int column = first + thread();
    float own = load(x, column, columns);
    if (column < columns) slab[thread()] = own;
    sync_threads();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      if (thread() >= distance && column < columns) own += slab[thread() - distance];
      sync_threads();
      if (column < columns) slab[thread()] = own;
      sync_threads();
    }
    store(y, column, columns, before + own);
    before += slab[kThreads - 1];
    sync_threads();
  }
}
const Registered a4(wrong("the end of a short row", unwritten, "which nobody wrote before"));

/// Threads beyond the row leave the loop, and the others wait for them.
__global__ void leaves_early(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int column = thread(); column < columns; column += kThreads) {
    const float own = rounds_of(slab, load(x, column, columns));
    store(y, column, columns, before + own);
    before += slab[kThreads - 1];
    sync_threads();
  }
}
const Registered a5(wrong("leaves before the barrier", leaves_early, "deadlock"));

/// Places before the slab, whose value is not used.
__global__ void before_the_slab(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    float own = load(x, first + thread(), columns);
    slab[thread()] = own;
    sync_threads();
    for (int distance = 1; distance < kThreads; distance *= 2) {
      const float other = slab[thread() - distance];
      own += thread() >= distance ? other : 0.0F;
      sync_threads();
      slab[thread()] = own;
      sync_threads();
    }
    store(y, first + thread(), columns, before + own);
    before += slab[kThreads - 1];
    sync_threads();
  }
}
const Registered a6(wrong("reads before the slab", before_the_slab, "outside every allocation"));

/// One thread adds all.
__global__ void one_thread(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    slab[thread()] = load(x, first + thread(), columns);
    sync_threads();
    if (thread() == 0)
      for (int i = 0; i < kThreads; ++i) slab[i] = before = before + slab[i];
    sync_threads();
    store(y, first + thread(), columns, slab[thread()]);
    sync_threads();
  }
}
const Registered a7(wrong("one thread adds all", one_thread, "shared memory is busy for"));

/// Up a tree and down again, in place: fewer additions, at places that are 2, 4, 8, ... apart.
__global__ void tree(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    slab[thread()] = load(x, first + thread(), columns);
    for (int distance = 1; distance < kThreads; distance *= 2) {
      sync_threads();
      const int to = 2 * distance * (thread() + 1) - 1;
      if (to < kThreads) slab[to] += slab[to - distance];
    }
    for (int distance = kThreads / 4; distance > 0; distance /= 2) {
      sync_threads();
      const int to = 2 * distance * (thread() + 1) - 1 + distance;
      if (to < kThreads) slab[to] += slab[to - distance];
    }
    sync_threads();
    store(y, first + thread(), columns, before + slab[thread()]);
    before += slab[kThreads - 1];
    sync_threads();
  }
}
const Registered a8(wrong("a tree in place", tree, "without bank conflicts"));

/// The sums before each element, without it.
__global__ void exclusive(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  float before = 0;
  for (int first = 0; first < columns; first += kThreads) {
    const float element = load(x, first + thread(), columns);
    const float own = rounds_of(slab, element);
    store(y, first + thread(), columns, before + own - element);
    before += slab[kThreads - 1];
    sync_threads();
  }
}
const Registered a9(wrong("without its own element", exclusive, "x [1, 1]: y: "));

/// Every part adds up all parts before it again.
__global__ void from_the_start(const float* x, float* y, int columns) {
  TRIREME_SHARED(float, slab, kThreads);
  for (int first = 0; first < columns; first += kThreads) {
    float before = 0;
    for (int part = 0; part < first; part += kThreads) {
      rounds_of(slab, load(x, part + thread(), columns));
      before += slab[kThreads - 1];
      sync_threads();
    }
    const float own = rounds_of(slab, load(x, first + thread(), columns));
    store(y, first + thread(), columns, before + own);
    sync_threads();
  }
}
const Registered a10(wrong("from the start for each part", from_the_start, "x is read in"));

}  // namespace
}  // namespace trireme::puzzles::scan
