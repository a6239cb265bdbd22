// See cuda/emu/wgmma_registers.h.
#include "cuda/emu/wgmma_registers.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

namespace trireme::cuda::emu {

namespace {

/// In threads' sums while a product is in flight: a signalling NaN, which every operation turns into another NaN.
constexpr std::uint32_t kInFlight = 0x7f97a5a5U;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

const Wgmma& argument(void* const* arguments, std::size_t thread) {
  return *static_cast<const Wgmma*>(arguments[thread]);
}

template <class F>
void for_each_sum(const Sums& sums, F&& f) {
  const auto n = static_cast<std::size_t>(sums.n);
  for (std::size_t thread = 0; thread < kGroupThreads; ++thread)
    for (std::size_t i = 0; i < n / 2; ++i) f(thread, i, row_of(thread, i) * n + column_of(thread, i));
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

bool has(const Sums& sums, std::size_t thread, const void* at, std::size_t bytes) {
  return overlap(sums.at[thread], static_cast<std::size_t>(sums.n) * 2, at, bytes);
}

/// The first thread with a register that is not as the last product left it.
std::optional<std::size_t> changed(const Sums& sums) {
  std::optional<std::size_t> found;
  for_each_sum(sums, [&](std::size_t thread, std::size_t i, std::size_t at) {
    if (!found && bits_of(sums.at[thread][i]) != bits_of(sums.values[at])) found = thread;
  });
  return found;
}

std::optional<std::size_t> changed(const Fragment& fragment, void* const* arguments) {
  for (std::size_t thread = 0; thread < kGroupThreads; ++thread)
    if (!std::equal(fragment.values[thread].begin(), fragment.values[thread].end(), argument(arguments, thread).a))
      return thread;
  return std::nullopt;
}

[[noreturn]] void fault_in_flight(const Block& block, const RegisterUse& use, const char* what, std::size_t thread,
                                  Site site) {
  block.fault(site, fmt::format("wgmma: thread {} of the warp group wrote {} of the product at {} while it was in "
                                "flight; write them after the wait for its group",
                                thread, what, block.place(use.site)));
}

[[noreturn]] void fault_fence(const Block& block, const RegisterUse& use, const char* what, std::size_t thread,
                              Site site) {
  block.fault(site,
              fmt::format("wgmma: thread {} of the warp group wrote {} since the product at {}, and no wgmma.fence "
                          "follows; call wgmma_fence() before this product",
                          thread, what, block.place(use.site)));
}

}  // namespace

std::shared_ptr<Sums> WgmmaRegisters::use(const Block& block, void* const* arguments, std::uint32_t group, Site site) {
  if (fences_ == 0)
    block.fault(site, "wgmma: the first product of a warp group, and no wgmma.fence before it; call wgmma_fence()");
  if (argument(arguments, 0).a != nullptr) use_fragment(block, arguments, group, site);
  return use_sums(block, arguments, group, site);
}

std::shared_ptr<Sums> WgmmaRegisters::use_sums(const Block& block, void* const* arguments, std::uint32_t group,
                                               Site site) {
  const int n = argument(arguments, 0).n;
  const auto bytes = static_cast<std::size_t>(n) * 2;
  std::array<float*, kGroupThreads> at{};
  for (std::size_t thread = 0; thread < kGroupThreads; ++thread) at[thread] = argument(arguments, thread).d;
  for (const std::shared_ptr<Sums>& earlier : sums_) {
    if (!has(*earlier, 0, at[0], bytes)) continue;
    const bool same = earlier->at == at && earlier->n == n;
    if (!same && (earlier->in_flight || earlier->fences == fences_))
      block.fault(
          site, fmt::format("wgmma: these sums overlap those of the product at {}, which has another shape (n = "
                            "{} there, {} here) or place; {} first",
                            block.place(earlier->site), earlier->n, n,
                            earlier->in_flight ? "wait for its group, and call wgmma_fence()" : "call wgmma_fence()"));
    if (same && earlier->in_flight) {  // the next of a row of products
      earlier->site = site;
      earlier->group = group;
      return earlier;
    }
    if (earlier->fences != fences_) continue;
    if (const auto thread = changed(*earlier)) fault_fence(block, *earlier, "sums", *thread, site);
  }
  for (const Fragment& earlier : fragments_)
    if (earlier.in_flight && overlap(earlier.at[0], 16, at[0], bytes))
      block.fault(site,
                  fmt::format("wgmma: these sums overlap the A registers of the product at {}, which is in flight; "
                              "wait for its group first",
                              block.place(earlier.site)));
  std::erase_if(sums_, [&](const auto& earlier) { return has(*earlier, 0, at[0], bytes); });
  const auto sums = std::make_shared<Sums>();
  static_cast<RegisterUse&>(*sums) = {site, group, fences_, true};
  sums->at = at;
  sums->n = n;
  sums->values.resize(64 * static_cast<std::size_t>(n));
  for_each_sum(*sums, [&](std::size_t thread, std::size_t i, std::size_t value) {
    sums->values[value] = at[thread][i];
    std::memcpy(&at[thread][i], &kInFlight, sizeof(kInFlight));
  });
  return sums_.emplace_back(sums);
}

void WgmmaRegisters::use_fragment(const Block& block, void* const* arguments, std::uint32_t group, Site site) {
  const std::uint32_t* const first = argument(arguments, 0).a;
  for (const std::shared_ptr<Sums>& sums : sums_)
    if (sums->in_flight && has(*sums, 0, first, 16))
      block.fault(site, fmt::format("wgmma: these A registers are sums of the product at {}, which is in flight; wait "
                                    "for its group first",
                                    block.place(sums->site)));
  auto found = std::find_if(fragments_.begin(), fragments_.end(), [&](const Fragment& f) { return f.at[0] == first; });
  if (found == fragments_.end()) {
    found = fragments_.insert(fragments_.end(), Fragment{});
  } else if (const auto thread = changed(*found, arguments)) {
    if (found->in_flight) fault_in_flight(block, *found, "A registers", *thread, site);
    if (found->fences == fences_) fault_fence(block, *found, "A registers", *thread, site);
  }
  static_cast<RegisterUse&>(*found) = {site, group, fences_, true};
  for (std::size_t thread = 0; thread < kGroupThreads; ++thread) {
    found->at[thread] = argument(arguments, thread).a;
    std::copy_n(found->at[thread], 4, found->values[thread].begin());
  }
}

void WgmmaRegisters::release(const Block& block, std::uint32_t waited, Site site) {
  for (Fragment& fragment : fragments_) {
    if (!fragment.in_flight || fragment.group > waited) continue;
    for (std::size_t thread = 0; thread < kGroupThreads; ++thread)
      if (!std::equal(fragment.values[thread].begin(), fragment.values[thread].end(), fragment.at[thread]))
        fault_in_flight(block, fragment, "A registers", thread, site);
    fragment.in_flight = false;
    fragment.fences = fences_;
  }
  for (const std::shared_ptr<Sums>& sums : sums_) {
    if (!sums->in_flight || sums->group > waited) continue;
    for_each_sum(*sums, [&](std::size_t thread, std::size_t i, std::size_t value) {
      if (bits_of(sums->at[thread][i]) != kInFlight) fault_in_flight(block, *sums, "sums", thread, site);
      sums->at[thread][i] = sums->values[value];
    });
    sums->in_flight = false;
    sums->fences = fences_;
  }
}

const RegisterUse* WgmmaRegisters::in_flight(std::size_t thread, const void* at, std::size_t bytes) const {
  for (const std::shared_ptr<Sums>& sums : sums_)
    if (sums->in_flight && has(*sums, thread, at, bytes)) return sums.get();
  for (const Fragment& fragment : fragments_)
    if (fragment.in_flight && overlap(fragment.at[thread], 16, at, bytes)) return &fragment;
  return nullptr;
}

const RegisterUse* WgmmaRegisters::in_flight() const {
  for (const std::shared_ptr<Sums>& sums : sums_)
    if (sums->in_flight) return sums.get();
  return nullptr;
}

}  // namespace trireme::cuda::emu
