// wgmma: products of a warp group, with operands read from shared memory through descriptors, by the asynchronous
// proxy. Descriptor bits: 0-13 start >> 4, 16-29 leading offset >> 4, 32-45 stride offset >> 4, 62-63 swizzle (1: 128
// bytes, 2: 64, 3: 32). Rows of w bytes (the swizzle's width) in groups of eight:
//   K-major, element (r, k):      start + r / 8 * stride + r % 8 * w + 2 k
//   M-/N-major, element (r, k):   start + 2r / w * leading + k / 8 * stride + k % 8 * w + 2r % w
// and then the swizzle, on the absolute address.
#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cuda/emu/matrix.h"
#include "cuda/emu/race.h"
#include "cuda/emu/wgmma_registers.h"

namespace trireme::cuda::emu {

namespace {

struct Descriptor {
  std::uint32_t start, leading, stride, width;
  Swizzle swizzle;

  Descriptor(std::uint64_t bits, const Block& block, Site site)
      : start(static_cast<std::uint32_t>(bits & 0x3fffU) << 4),
        leading(static_cast<std::uint32_t>((bits >> 16) & 0x3fffU) << 4),
        stride(static_cast<std::uint32_t>((bits >> 32) & 0x3fffU) << 4),
        width(0),
        swizzle(Swizzle::none) {
    constexpr Swizzle modes[4] = {Swizzle::none, Swizzle::b128, Swizzle::b64, Swizzle::b32};
    swizzle = modes[bits >> 62];
    width = swizzle == Swizzle::b128 ? 128 : swizzle == Swizzle::b64 ? 64 : 32;
    if (swizzle == Swizzle::none) block.fault(site, "wgmma: operands without a swizzle are not supported; use one");
  }
  std::uint32_t address(std::uint32_t r, std::uint32_t k, bool transposed) const {
    const std::uint32_t linear = transposed
                                     ? start + 2 * r / width * leading + k / 8 * stride + k % 8 * width + 2 * r % width
                                     : start + r / 8 * stride + r % 8 * width + 2 * k;
    return swizzled(swizzle, linear);
  }
};

float to_float(std::uint16_t bits, Half type) {
  bf16 b;
  f16 h;
  b.bits = h.bits = bits;
  return type == Half::bf16 ? static_cast<float>(b) : static_cast<float>(h);
}

/// Rows x 16 values of an operand in shared memory, K fastest.
std::vector<float> operand(const Block& block, std::uint64_t bits, int rows, bool transposed, Half type, Site site) {
  const Descriptor descriptor(bits, block, site);
  std::vector<float> values(static_cast<std::size_t>(rows) * 16);
  for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(rows); ++r)
    for (std::uint32_t k = 0; k < 16; ++k) {
      const std::uint32_t address = descriptor.address(r, k, transposed);
      if (k % 8 == 0 || transposed) block.check_shared_address(address, 2, "wgmma operand", site);
      std::uint16_t raw = 0;
      std::memcpy(&raw, block.async_view_at(address), 2);
      values[r * 16 + k] = to_float(raw, type);
    }
  return values;
}

/// A product from its issue to its completion.
struct Pending {
  Wgmma common;
  std::shared_ptr<Sums> sums;
  std::vector<float> a_registers;  ///< [64, 16] when A comes from registers
};

std::vector<float> gather_a(void* const* all, Half type) {
  std::vector<float> a(64 * 16);
  for (int thread = 0; thread < 128; ++thread) {
    const auto& mine = *static_cast<const Wgmma*>(all[thread]);
    for (int i = 0; i < 8; ++i) {
      const int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2),
                k = 2 * (thread % 4) + 8 * (i / 4) + i % 2;
      a[static_cast<std::size_t>(row) * 16 + static_cast<std::size_t>(k)] =
          to_float(static_cast<std::uint16_t>(mine.a[i / 2] >> (16 * (i % 2))), type);
    }
  }
  return a;
}

void multiply(const Block& block, const Pending& pending, Site site) {
  const Wgmma& op = pending.common;
  const auto n = static_cast<std::size_t>(op.n);
  const std::vector<float> a =
      op.a != nullptr ? pending.a_registers : operand(block, op.descriptor_a, 64, op.transpose_a, op.type, site);
  const std::vector<float> b = operand(block, op.descriptor_b, op.n, op.transpose_b, op.type, site);
  std::vector<float> bt(n * 16), sum(n * 64, 0.0F);  // [16, n], [64, n]
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t k = 0; k < 16; ++k) bt[k * n + j] = b[j * 16 + k];
  for (std::size_t r = 0; r < 64; ++r)
    for (std::size_t k = 0; k < 16; ++k)
      for (std::size_t j = 0; j < n; ++j) sum[r * n + j] += a[r * 16 + k] * bt[k * n + j];
  std::vector<float>& total = pending.sums->values;
  for (std::size_t i = 0; i < total.size(); ++i) total[i] = (op.accumulate ? total[i] : 0.0F) + sum[i];
}

/// Tells the race checker which memory the product reads for an operand: eight values at a time, which are neighbours
/// in memory, along K or, transposed, along the rows.
void race_operand(Block& block, std::uint64_t bits, int rows, bool transposed, const void* pc, Site site) {
  const Descriptor descriptor(bits, block, site);
  const auto count = static_cast<std::uint32_t>(rows);
  for (std::uint32_t r = 0; r < count; r += transposed ? 8 : 1)
    for (std::uint32_t k = 0; k < 16; k += transposed ? 1 : 8) {
      const std::uint32_t address = descriptor.address(r, k, transposed);
      block.check_shared_address(address, 16, "wgmma operand", site);
      block.race()->wgmma_operand(block.shared_at(address), 16, pc);
    }
}

}  // namespace

void wgmma(const Wgmma& operation, Site site) {
  Block& block = *running_block;
  if (operation.n % 8 != 0 || operation.n < 8 || operation.n > 256)
    block.fault(site, fmt::format("wgmma: n = {}; expected a multiple of 8 up to 256", operation.n));
  Wgmma mine = operation;
  const void* const pc = __builtin_return_address(0);
  block.meet_warp_group("wgmma", site, &mine, [&](void* const* all) {
    auto pending = std::make_shared<Pending>();
    pending->common = operation;
    for (int thread = 0; thread < 128; ++thread) {
      const auto& other = *static_cast<const Wgmma*>(all[thread]);
      if (other.descriptor_a != operation.descriptor_a || other.descriptor_b != operation.descriptor_b)
        block.fault(site, "wgmma: the threads of the warp group bring different descriptors");
    }
    if (operation.a != nullptr) pending->a_registers = gather_a(all, operation.type);
    if (block.race() != nullptr) {
      block.race()->wgmma_registers(all, site);
      block.race()->begin_wgmma();
      if (operation.a == nullptr) race_operand(block, operation.descriptor_a, 64, operation.transpose_a, pc, site);
      race_operand(block, operation.descriptor_b, operation.n, operation.transpose_b, pc, site);
    }
    AsyncGroups& group = block.wgmma_of_group();
    pending->sums = block.wgmma_registers_of(block.fiber()).use(block, all, group.committed + 1, site);
    block.start([&block, pending, site] { multiply(block, *pending, site); }, &group);
  });
}

void wgmma_fence(Site site) {
  Block& block = *running_block;
  block.meet_warp_group("wgmma.fence", site, nullptr,
                        [&](void* const*) { block.wgmma_registers_of(block.fiber()).fence(); });
}

void wgmma_commit(Site site) {
  Block& block = *running_block;
  block.meet_warp_group("wgmma.commit_group", site, nullptr, [&](void* const*) { block.wgmma_of_group().commit(); });
}

void wgmma_wait(int newest, Site site) {
  Block& block = *running_block;
  block.meet_warp_group("wgmma.wait_group", site, nullptr, [&](void* const*) {
    AsyncGroups& groups = block.wgmma_of_group();
    groups.wait(static_cast<std::size_t>(newest));
    block.wgmma_registers_of(block.fiber()).release(block, groups.waited, site);
  });
}

}  // namespace trireme::cuda::emu
