// The message of a race: both accesses, who made them, and the kernel lines they came from. Lines come from the
// program's debug information through addr2line, which is part of binutils.
// See cuda/emu/race.h.
#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "cuda/emu/race.h"

namespace trireme::cuda::emu {

bool writes(AccessKind kind) {
  return kind == AccessKind::write || kind == AccessKind::stmatrix || kind == AccessKind::mbarrier_init ||
         kind == AccessKind::copy_target || kind == AccessKind::tma_target;
}

const char* phrase(AccessKind kind) {
  constexpr std::array<const char*, 12> phrases = {"does nothing",
                                                   "reads",
                                                   "writes",
                                                   "reads by ldmatrix",
                                                   "writes by stmatrix",
                                                   "initialises an mbarrier",
                                                   "uses an mbarrier",
                                                   "reads by cp.async",
                                                   "writes by cp.async",
                                                   "reads by TMA",
                                                   "writes by TMA",
                                                   "reads by wgmma"};
  return phrases[static_cast<std::size_t>(kind)];
}

namespace {

std::uintptr_t program_begin() {
  static const std::uintptr_t begin = [] {
    std::uintptr_t first = 0;
    const auto take_first = [](dl_phdr_info* info, std::size_t, void* result) {  // the program itself comes first
      *static_cast<std::uintptr_t*>(result) = info->dlpi_addr;
      return 1;
    };
    dl_iterate_phdr(take_first, &first);
    return first;
  }();
  return begin;
}

/// One line of addr2line, "/path/norm.cu:70 (discriminator 2)", as "norm.cu:70"; empty for what is not kernel code.
std::string kernel_line(std::string line) {
  for (const char* const other : {"/cuda/emu/", "/usr/", "??"})
    if (line.find(other) != std::string::npos) return {};
  line = line.substr(0, std::min(line.find(" (discriminator "), line.find('\n')));  // a path may have blanks
  const std::size_t slash = line.rfind('/');
  return slash == std::string::npos ? line : line.substr(slash + 1);
}

/// The index of a block or thread: "12", or "(4, 1)" and "(4, 1, 0)" if `extent` has two or three dims.
std::string index_in(unsigned flat, const Dim3& extent) {
  if (extent.y * extent.z == 1) return fmt::format("{}", flat);
  const unsigned x = flat % extent.x, y = flat / extent.x % extent.y, z = flat / extent.x / extent.y;
  return extent.z == 1 ? fmt::format("({}, {})", x, y) : fmt::format("({}, {}, {})", x, y, z);
}

std::string who(const Access& access, const RaceLaunch& launch) {
  const auto kind = static_cast<AccessKind>(access.kind);
  const unsigned thread = access.thread;
  const std::string part = kind == AccessKind::wgmma ? fmt::format("warp group {}", thread / 128)
                                                     : "thread " + index_in(thread, launch.block);
  return fmt::format("block {} {} {} at {}", index_in(access.block, launch.grid), part, phrase(kind),
                     lines_of(access.pc));
}

}  // namespace

std::uint32_t program_offset(const void* pc) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pc) - program_begin());
}

namespace {

/// What addr2line says of each of `pcs`.
std::vector<std::string> find_lines(const std::vector<std::uint32_t>& pcs) {
  // -a: an address before the lines of each. A return address is the instruction after the call.
  std::string command = fmt::format("addr2line -a -i -e /proc/{}/exe", getpid());
  for (const std::uint32_t pc : pcs) command += fmt::format(" {:#x}", pc - 1);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  require(pipe != nullptr, "emu", "addr2line cannot be started; it names the lines of a race. Install binutils");
  std::vector<std::string> texts;
  std::string last;
  bool beyond = false;  // the kernel: its callers follow
  std::array<char, 4096> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe.get()) != nullptr) {
    const bool next = std::string_view(buffer.data()).starts_with("0x");
    if (next) texts.emplace_back();
    if (next || texts.empty()) {
      last.clear();
      beyond = false;
      continue;
    }
    const std::string line = kernel_line(buffer.data());
    std::string& text = texts.back();
    beyond = beyond || (line.empty() && !text.empty());
    if (beyond || line.empty() || line == last) continue;
    text += (text.empty() ? "" : " in ") + line;
    last = line;
  }
  texts.resize(pcs.size());
  for (std::size_t i = 0; i < pcs.size(); ++i)
    if (texts[i].empty()) texts[i] = fmt::format("program address {:#x}", pcs[i]);
  return texts;
}

/// addr2line needs a tenth of a second, and tests ask for the same lines under several schedules.
struct KnownLines {
  std::mutex mutex;
  std::map<std::uint32_t, std::string> lines;
};
KnownLines& known() {
  static KnownLines all;
  return all;
}

}  // namespace

void look_up_lines(const std::vector<std::uint32_t>& pcs) {
  const std::lock_guard lock(known().mutex);
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t pc : pcs)
    if (!known().lines.contains(pc)) missing.push_back(pc);
  if (missing.empty()) return;
  const std::vector<std::string> lines = find_lines(missing);
  for (std::size_t i = 0; i < missing.size(); ++i) known().lines.emplace(missing[i], lines[i]);
}

std::string lines_of(std::uint32_t pc) {
  look_up_lines({pc});
  const std::lock_guard lock(known().mutex);
  return known().lines.at(pc);
}

void RaceLaunch::throw_races(const char* kernel, std::uint64_t seed) const {
  std::string text;
  for (const Race& race : races)
    text += fmt::format("{}race on {}: {}; before that {}; {}", text.empty() ? "" : ". Also a ", race.place,
                        who(race.later, *this), who(race.earlier, *this),
                        race.only_fence_missing ? "no proxy fence lies between the two" : "nothing orders the two");
  for (const Stray& stray : strays)
    text += fmt::format("{}{}: {}", text.empty() ? "" : ". Also ", who(stray.access, *this), stray.what);
  if (!text.empty()) fail(ExitCode::internal, kernel, "schedule {}: {}", seed, text);
}

void RaceLaunch::require_accesses(const char* kernel) const {
  if (instrumented_accesses == 0)
    fail(ExitCode::internal, kernel,
         "race check: not one load or store of this kernel was seen; compile its source with -fsanitize=thread, and "
         "watch the memory it is given");
}

}  // namespace trireme::cuda::emu
