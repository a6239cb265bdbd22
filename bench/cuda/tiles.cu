// Times gemm_sm90 with each size of tiles at the shapes of GPT-2 124M (16 sequences of 1024 tokens), beside what
// cuda/kernels/gemm_cut.h expects: whether it chooses well, and what its constants should be. A line for each shape has
// microseconds, and in parentheses what is expected at the clock that was measured.
//
//   build-gpu/bin/tiles_bench [PRODUCT]     for example "MLP up: dW"; scripts/gpu_check --pack makes the program
//
// A GPU that works hard draws too much power, and lowers its clock within milliseconds. So each time is that of a few
// products after a pause, sizes take turns, and the median of several rounds counts.
// Read next: bench/cuda/compare.py, which compares products with cuBLASLt's.
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <vector>

#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_cut.h"

namespace {

using namespace trireme;
using namespace trireme::cuda;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "tiles: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Device memory filled with random values from -1 to 1: products of zeros take less power, and so less time.
template <class T>
T* random_memory(std::size_t count) {
  T* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<T> some(std::size_t{1} << 20);
  for (T& value : some) value = T(values(random));
  for (std::size_t done = 0; done < count; done += some.size()) {
    const std::size_t part = std::min(some.size(), count - done);
    check(cudaMemcpy(memory + done, some.data(), part * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  return memory;
}

struct Product {
  const char* name;
  Form form;
  int m, n, k;
  Activation activation = Activation::none;  ///< nt stores the value before it, too; nn multiplies by its derivative
};
constexpr Product kProducts[] = {{"q, k, v", Form::nt, 16384, 2304, 768},
                                 {"projection", Form::nt, 16384, 768, 768},
                                 {"MLP up", Form::nt, 16384, 3072, 768},
                                 {"MLP down", Form::nt, 16384, 768, 3072},
                                 {"logits", Form::nt, 16384, 50304, 768},
                                 {"MLP up, GELU", Form::nt, 16384, 3072, 768, Activation::gelu},
                                 {"MLP down: dGELU", Form::nn, 16384, 3072, 768, Activation::gelu},
                                 {"q, k, v: dx", Form::nn, 16384, 768, 2304},
                                 {"projection: dx", Form::nn, 16384, 768, 768},
                                 {"MLP up: dx", Form::nn, 16384, 768, 3072},
                                 {"MLP down: dx", Form::nn, 16384, 3072, 768},
                                 {"logits: dx", Form::nn, 16384, 768, 50304},
                                 {"q, k, v: dW", Form::tn, 2304, 768, 16384},
                                 {"projection: dW", Form::tn, 768, 768, 16384},
                                 {"MLP up: dW", Form::tn, 3072, 768, 16384},
                                 {"MLP down: dW", Form::tn, 768, 3072, 16384},
                                 {"logits: dW", Form::tn, 50304, 768, 16384},
                                 {"square", Form::nt, 8192, 8192, 8192}};

struct Size {
  const char* name;
  Tile90 tile;
};
constexpr Size kSizes[] = {{"automatic", Tile90::automatic},
                           {"128 x 128", Tile90::m128n128},
                           {"128 x 256", Tile90::m128n256},
                           {"128 x 192", Tile90::m128n192},
                           {"256 x 384", Tile90::m256n384}};
constexpr std::size_t kMost = std::size_t{16384} * 50304, kRounds = 7;

struct Memory {
  bf16 *a = random_memory<bf16>(kMost), *b = random_memory<bf16>(std::size_t{8192} * 8192),
       *c = random_memory<bf16>(kMost), *before = random_memory<bf16>(std::size_t{16384} * 3072);
  float* partials = random_memory<float>(std::size_t{1} << 27);
};

/// The clock of a multiprocessor, and the time in nanoseconds.
__global__ void stamp(long long* to) {
  long long time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  to[0] = clock64();
  to[1] = time;
}

struct Timed {
  double us, mhz;
};

/// A product's time, from a few in a row.
template <class Out>
Timed time_of(const Product& s, const Memory& memory, Tile90 tile) {
  static long long* stamps = nullptr;
  if (stamps == nullptr) check(cudaMalloc(&stamps, 4 * sizeof(long long)), "cudaMalloc");
  const bool a_of_m = s.form == Form::tn, b_of_k = s.form == Form::nt;
  Gemm<bf16, Out> product = {s.form,
                             s.m,
                             s.n,
                             s.k,
                             memory.a,
                             a_of_m ? s.m : s.k,
                             memory.b,
                             b_of_k ? s.k : s.n,
                             reinterpret_cast<Out*>(memory.c),
                             s.n};
  product.epilogue.activation = s.activation;
  product.epilogue.derivative = s.activation != Activation::none && s.form == Form::nn;
  if (s.activation != Activation::none) product.epilogue.pre_activation = memory.before;
  const auto run = [&] { gemm_sm90(product, nullptr, tile, [&](std::int64_t) { return memory.partials; }); };
  usleep(10000);
  run();
  constexpr int kTimes = 4;
  stamp<<<1, 1>>>(stamps);
  for (int i = 0; i < kTimes; ++i) run();
  stamp<<<1, 1>>>(stamps + 2);
  long long seen[4] = {};
  check(cudaMemcpy(seen, stamps, sizeof(seen), cudaMemcpyDeviceToHost), "the products");
  const double ns = static_cast<double>(seen[3] - seen[1]);
  return {ns / 1000 / kTimes, 1000 * static_cast<double>(seen[2] - seen[0]) / ns};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_line(const Product& s, const Memory& memory, const sm90::Resident& resident) {
  std::vector<double> us[std::size(kSizes)], mhz;
  for (std::size_t round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      const std::size_t at = (i + round) % std::size(kSizes);
      const Tile90 tile = kSizes[at].tile;
      const Timed timed = s.form == Form::tn ? time_of<float>(s, memory, tile) : time_of<bf16>(s, memory, tile);
      us[at].push_back(timed.us);
      mhz.push_back(timed.mhz);
    }
  std::printf("%-15s %5d %5d %5d", s.name, s.m, s.n, s.k);
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    const sm90::Cut cut = sm90::cut(s.m, s.n, s.k, 1, resident, true, Epilogues::simple, kSizes[i].tile);
    std::printf("%8.1f (%6.1f)", median(us[i]), cut.cycles / median(mhz));
  }
  std::printf("%9.0f%7.0f\n", 2.0 * s.m * s.n * s.k / median(us[0]) / 1e6, median(mhz));
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  const Memory memory;
  const sm90::Resident resident = sm90::resident_of_gemm();
  std::printf("%d blocks and %d clusters of two run at the same time\n%33s", resident.blocks, resident.pairs, "us");
  for (const Size& size : kSizes) std::printf("%17s", size.name);
  std::printf("%9s%7s\n", "TFLOP/s", "MHz");
  for (const Product& product : kProducts)
    if (count < 2 || std::string_view(words[1]) == product.name) print_line(product, memory, resident);
}
