// What one rank of a dry run does (core/dry_run.h), in order: kernels, messages and collectives with their sizes, and
// waits. A simulation of time runs the traces of several ranks (ops/plan/simulate.h).
//
//   Trace trace;
//   const DryRun dry(&trace);
//   const auto world = dry_world(ranks, rank, &trace);   // and then the rank's program
//
// Between two kernels a program needs the processor too: it records operations for backward, and takes memory. This is
// measured, on the machine that makes the trace. Read next: train/step/rank_memory.h.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/dry_run.h"
#include "core/memory.h"
#include "core/profile.h"
#include "core/stopwatch.h"
#include "parallel/comm/collective.h"

namespace trireme {

/// What tells a kernel's call from others that may take another time: its name, its tensors and its least work.
using CallIdentity = std::tuple<std::string, std::string, double, double>;
inline CallIdentity identity(const ProfileEvent& call) {
  return {call.name, call.detail, call.cost.flops, call.cost.bytes};
}

class Trace final : public DryListener {
 public:
  /// May call `compute` to measure the kernel. `step`: how many marks there are.
  using Measure = std::function<void(const ProfileEvent& call, const std::function<void()>& compute, int step)>;
  explicit Trace(Measure measure = {}) : measure_(std::move(measure)) {}

  /// Some ranks that communicate.
  struct Group {
    std::string name;          ///< "tp[pp=0,data=1]"
    std::vector<int> members;  ///< world ranks
  };
  enum class TransferKind : std::uint8_t { collective, send, receive };
  /// A collective of a group, or one side of a message.
  struct Transfer {
    TransferKind kind = TransferKind::collective;
    comm::Signature collective = {};
    int group = 0;  ///< index in groups()
    int peer = -1;  ///< of a message: a world rank
    int tag = 0;
    std::int64_t bytes = 0;   ///< of a message; of a collective: of one rank's share
    bool background = false;  ///< runs while the rank computes; other collectives run when the rank waits for them
  };
  enum class EventKind : std::uint8_t { kernel, start, wait, mark };
  struct Event {
    EventKind kind;
    int index;            ///< in kernels(), in transfers(); of a mark: how many came before
    double host_seconds;  ///< the program's own work since the event before
  };
  /// An action of a pipeline's schedule (parallel/pipeline/actions.h): the events from `begin` up to `end`.
  struct Part {
    std::string kind;  ///< "forward"
    int stage = 0, micro_batch = 0;
    std::size_t begin = 0, end = 0;
  };
  using Bytes = std::array<std::int64_t, memory_categories>;

  bool measures() const { return measure_ != nullptr; }
  const std::vector<ProfileEvent>& kernels() const { return kernels_; }  ///< the different calls
  const std::vector<Transfer>& transfers() const { return transfers_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Event>& events() const { return events_; }
  const std::vector<Part>& parts() const { return parts_; }

  void kernel(const std::function<ProfileEvent()>& describe, const std::function<void()>& compute) override;
  int add_group(const std::string& name, const std::vector<int>& members);  ///< returns its index
  int start(const Transfer& transfer);                                      ///< returns its index
  void wait(int transfer);
  void mark();  ///< the end of a step

  /// The trace of the calling thread's dry run, or null.
  static Trace* current() { return dynamic_cast<Trace*>(DryRun::listener()); }
  void begin_part(std::string kind, int stage, int micro_batch);
  void end_part() { parts_.back().end = events_.size(); }

  /// The same kernels, with other groups, transfers and events; without parts and memory.
  Trace with(std::vector<Group> groups, std::vector<Transfer> transfers, std::vector<Event> events) const;

  /// From now on the trace notes what is in use on `device`.
  void watch_memory(Device device) { watched_ = device; }
  /// Bytes in use by category when each event began; empty if memory is not watched.
  const std::vector<Bytes>& memory() const { return memory_; }

 private:
  void add(EventKind kind, int index, double host_seconds);

  Measure measure_;
  std::map<CallIdentity, int> numbers_;  // of kernels
  std::vector<ProfileEvent> kernels_;
  std::vector<Transfer> transfers_;
  std::vector<Group> groups_;
  std::vector<Event> events_;
  std::vector<Part> parts_;
  std::optional<Device> watched_;
  std::vector<Bytes> memory_;
  int marks_ = 0;
  Stopwatch since_event_;
};

}  // namespace trireme
