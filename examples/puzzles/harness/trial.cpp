// See examples/puzzles/harness/trial.h.
#include "examples/puzzles/harness/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "cuda/emu/race.h"
#include "cuda/emu/schedule.h"

namespace trireme::puzzles {
namespace {

using cuda::emu::InstructionTraffic;
using cuda::emu::Traffic;

/// What an emulated launch says, without the names of its parts.
std::string message_of(const std::exception& error) {
  const auto* const own = dynamic_cast<const Error*>(&error);
  const std::string text = own == nullptr ? error.what() : own->reason();
  if (text.find("not one load or store of this kernel was seen") == std::string::npos) return text;
  return "the kernel does nothing: not one load or store of it was seen";
}

[[noreturn]] void fail_as(const std::string& label, const std::string& message) {
  throw Error(ExitCode::internal, "puzzle", label + ": " + message);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.span<const float>(), y = b.span<const float>();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

/// All that one line does to one array.
struct LineTraffic {
  std::string line;
  InstructionTraffic sum;

  std::string array() const { return sum.shared ? "shared memory" : sum.array; }
  std::string what() const { return fmt::format("{} {} {}", line, sum.writes ? "writes" : "reads", array()); }
};

std::vector<LineTraffic> by_line(const Traffic& traffic) {
  std::vector<std::uint32_t> pcs;
  for (const InstructionTraffic& instruction : traffic.instructions) pcs.push_back(instruction.pc);
  cuda::emu::look_up_lines(pcs);
  std::vector<LineTraffic> lines;
  for (const InstructionTraffic& instruction : traffic.instructions) {
    const LineTraffic here{cuda::emu::lines_of(instruction.pc), instruction};
    const auto found = std::ranges::find(lines, here.what(), &LineTraffic::what);
    if (found == lines.end()) {
      lines.push_back(here);
      continue;
    }
    found->sum.accesses += instruction.accesses;
    found->sum.transactions += instruction.transactions;
    found->sum.least += instruction.least;
  }
  return lines;
}

std::string table(const std::string& label, const Traffic& traffic) {
  std::string text = fmt::format("{}: what each line costs, over all warps\n  {:<44} {:>9} {:>13} {:>11}\n", label, "",
                                 "accesses", "transactions", "at best");
  for (const LineTraffic& line : by_line(traffic))
    text += fmt::format("  {:<44} {:>9} {:>13} {:>11} {}\n", line.what(), line.sum.accesses, line.sum.transactions,
                        line.sum.least, line.sum.shared ? "wavefronts" : "sectors");
  return text +
         fmt::format("  shared memory of a block: {} bytes; barriers: {}\n", traffic.shared_bytes, traffic.barriers);
}

/// The line for which `value` is the largest, among those that `counts`.
template <class Counts, class Value>
LineTraffic worst(const Traffic& traffic, Counts&& counts, Value&& value) {
  std::vector<LineTraffic> lines = by_line(traffic);
  std::erase_if(lines, [&](const LineTraffic& line) { return !counts(line.sum); });
  return *std::ranges::max_element(lines, {}, [&](const LineTraffic& line) { return value(line.sum); });
}

std::uint64_t excess(const InstructionTraffic& sum) { return sum.excess(); }
std::uint64_t transactions(const InstructionTraffic& sum) { return sum.transactions; }
std::uint64_t accesses(const InstructionTraffic& sum) { return sum.accesses; }
bool is_shared(const InstructionTraffic& sum) { return sum.shared; }
bool is_global(const InstructionTraffic& sum) { return !sum.shared; }

void expect_few_conflicts(Grading& grading, const Traffic& traffic, const Budget& budget) {
  if (traffic.bank_conflicts() > budget.bank_conflicts) {
    const LineTraffic line = worst(traffic, is_shared, excess);
    grading.expect(fmt::format(
        "{} in {} wavefronts, where {} would do without bank conflicts; the kernel has {} "
        "conflicts in all, and the budget is {}",
        line.what(), line.sum.transactions, line.sum.least, traffic.bank_conflicts(), budget.bank_conflicts));
  }
  if (traffic.wavefronts() > budget.wavefronts) {
    const LineTraffic line = worst(traffic, is_shared, transactions);
    grading.expect(fmt::format(
        "shared memory is busy for {} wavefronts, and the budget is {}. Most come from one line: "
        "{} in {} wavefronts, in {} accesses by a warp. A warp costs as much with 2 lanes at work as with 32",
        traffic.wavefronts(), budget.wavefronts, line.what(), line.sum.transactions, line.sum.accesses));
  }
  std::uint64_t all = 0;
  for (const InstructionTraffic& instruction : traffic.instructions)
    all += is_shared(instruction) ? accesses(instruction) : 0;
  if (all > budget.accesses) {
    const LineTraffic line = worst(traffic, is_shared, accesses);
    grading.expect(fmt::format(
        "warps load from and store to shared memory {} times, and the budget is {}. Most come from one line: "
        "{} {} times",
        all, budget.accesses, line.what(), line.sum.accesses));
  }
}

void expect_few_sectors(Grading& grading, const Traffic& traffic, const Budget& budget,
                        const std::vector<ArrayBudget>& arrays) {
  if (traffic.excess_sectors() > budget.excess_sectors) {
    const LineTraffic line = worst(traffic, is_global, excess);
    grading.expect(fmt::format(
        "{} in {} sectors of 32 bytes, where {} would hold the bytes that the lanes want; the "
        "kernel moves {} sectors more than that in all, and the budget is {}",
        line.what(), line.sum.transactions, line.sum.least, traffic.excess_sectors(), budget.excess_sectors));
  }
  for (const ArrayBudget& array : arrays) {
    for (const bool writes : {false, true}) {
      const std::uint64_t sectors = traffic.sectors(array.array, writes), most = writes ? array.written : array.read;
      if (sectors <= most) continue;
      const auto of_array = [&](const InstructionTraffic& sum) {
        return !sum.shared && sum.writes == writes && sum.array == array.array;
      };
      const LineTraffic line = worst(traffic, of_array, transactions);
      grading.expect(
          fmt::format("{} {} in {} sectors of 32 bytes, and the budget is {}. Most come from one line: {} in "
                      "{} sectors, in {} accesses by a warp",
                      array.array, writes ? "is written" : "is read", sectors, most, line.what(), line.sum.transactions,
                      line.sum.accesses));
    }
  }
}

void expect_copies(Grading& grading, const Traffic& traffic, const Budget& budget) {
  const double alone = static_cast<double>(traffic.shared_reads - traffic.reads_beside_copies) /
                       static_cast<double>(std::max<std::uint64_t>(1, traffic.shared_reads));
  grading.expect(alone <= budget.reads_without_copies,
                 "of the loads of shared memory {:.0f}% are made while no cp.async is in flight, and the budget is "
                 "{:.0f}%",
                 100 * alone, 100 * budget.reads_without_copies);
  grading.expect(traffic.most_tma_loads >= budget.tma_loads,
                 "TMA loads of a block in flight at the same time: {}; expected {}", traffic.most_tma_loads,
                 budget.tma_loads);
}

}  // namespace

void expect_result(Grading& grading, const Trial& trial) {
  Tensor first;
  for (int seed = 0; seed < trial.schedules; ++seed) {
    const cuda::emu::ScopedSchedule schedule({static_cast<std::uint64_t>(seed)});
    try {
      const cuda::emu::ScopedRaceCheck check;
      const Tensor got = trial.run();
      grading.expect(labs::difference(trial.name, got, trial.want, trial.comparison));
      if (!first.defined()) first = got;
      grading.expect(same_bits(first, got),
                     "{} has other bits when the threads run in another order; the same terms must be added in the "
                     "same order",
                     trial.name);
    } catch (const std::exception& error) { fail_as(trial.label, message_of(error)); }
  }
}

Traffic counted(const std::function<void()>& run) {
  const cuda::emu::ScopedTraffic traffic;
  run();
  return traffic.sum();
}

void check_budget(Grading& grading, const std::string& label, const std::function<void()>& run, const Budget& budget,
                  const std::vector<ArrayBudget>& arrays) {
  const Traffic traffic = counted(run);
  grading.show(table(label, traffic));
  grading.check(fmt::format("budget, {}: global memory", label),
                [&] { expect_few_sectors(grading, traffic, budget, arrays); });
  if (traffic.wavefronts() > 0)
    grading.check(fmt::format("budget, {}: shared memory", label), [&] {
      expect_few_conflicts(grading, traffic, budget);
      grading.expect(traffic.shared_bytes <= budget.shared_bytes,
                     "a block has {} bytes of shared memory, and the budget is {}", traffic.shared_bytes,
                     budget.shared_bytes);
    });
  if (budget.reads_without_copies < 1 || budget.tma_loads > 0)
    grading.check(fmt::format("budget, {}: copies in flight", label), [&] { expect_copies(grading, traffic, budget); });
  if (budget.barriers != Budget::any)
    grading.check(fmt::format("budget, {}: barriers", label), [&] {
      grading.expect(traffic.barriers <= budget.barriers, "barriers of a block: {}, and the budget is {}",
                     traffic.barriers, budget.barriers);
    });
}

}  // namespace trireme::puzzles
