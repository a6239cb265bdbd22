// A program without a race in which racecheck of CUDA 13.0 reports one, on an H100. Warps 0 and 1 of a block meet at
// one named barrier, warps 2 and 3 at another, and the rest at none. Then all meet at barrier 0, between the writes and
// the reads of `values`.
//
//   nvcc -arch=sm_90 -o false_race scripts/gpu/false_race.cu && compute-sanitizer --tool racecheck ./false_race
//
// Read next: scripts/gpu/sanitizing.py, which leaves such reports out.
#include <cstdio>

__global__ void kernel(float* out) {
  __shared__ float scratch[4];
  extern __shared__ float values[];  // [256]
  const int thread = static_cast<int>(threadIdx.x), team = thread / 64;
  if (team < 2) {
    if (thread % 32 == 0) scratch[thread / 32] = static_cast<float>(thread);
    asm volatile("bar.sync %0, 64;" ::"r"(1 + team) : "memory");
    out[thread] = scratch[2 * team] + scratch[2 * team + 1];
  }
  values[thread] = out[thread];
  __syncthreads();
  float total = 0;
  for (int i = 0; i < 4; ++i) total += values[(thread + 64 * i) % 256];
  out[thread] = total;
}

int main() {
  float* out = nullptr;
  cudaMalloc(&out, 1024);
  cudaMemset(out, 0, 1024);
  kernel<<<1, 256, 1024>>>(out);
  std::printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
