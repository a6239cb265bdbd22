// Turns counts into microseconds of an H200: examples/cuda_lab/memory.h.
#include "examples/cuda_lab/memory.h"

#include <algorithm>
#include <cmath>

namespace trireme::cuda::lab {

namespace {

// Bandwidth: NVIDIA's data sheet. The rest are rough assumptions: a load that misses L1 while memory is busy; a barrier
// with its exchange through shared memory; and the extra time of a launch that directly follows another.
constexpr double kBandwidth = 4.8e12, kMultiprocessors = 132, kClock = 1.83e9, kIssued = 4;
constexpr double kWait = 0.7, kBarrier = 0.03, kLaunch = 2;  // microseconds

}  // namespace

MemoryCost cost_of(const Pass& p) {
  const double turns = std::ceil(p.blocks / (kMultiprocessors * p.resident));
  const double memory = p.bytes / kBandwidth * 1e6, latency = turns * (p.waits * kWait + p.barriers * kBarrier);
  const double blocks_each = p.blocks / std::min(p.blocks, kMultiprocessors);
  const double wavefronts = blocks_each * p.wavefronts / kClock * 1e6;
  const double issuing = blocks_each * p.instructions / (kIssued * kClock) * 1e6;
  const double products = std::ceil(p.blocks / kMultiprocessors) * p.products / kClock * 1e6;
  const double longest = std::max({memory, latency, wavefronts, issuing, products});
  return {p.bytes, memory, latency, wavefronts, issuing, products, kLaunch, longest + kLaunch};
}

MemoryCost operator+(const MemoryCost& a, const MemoryCost& b) {
  return {a.bytes + b.bytes,     a.memory + b.memory,     a.latency + b.latency,     a.wavefronts + b.wavefronts,
          a.issuing + b.issuing, a.products + b.products, a.launching + b.launching, a.forecast + b.forecast};
}

double MemoryCost::least() const { return std::max(memory, products); }

const char* MemoryCost::bound() const {
  const double most = std::max({memory, latency, wavefronts, issuing, products, launching});
  if (most == products) return "products";
  if (most == memory) return "bytes";
  if (most == latency) return "waiting";
  if (most == wavefronts) return "wavefronts";
  return most == issuing ? "instructions" : "launches";
}

}  // namespace trireme::cuda::lab
