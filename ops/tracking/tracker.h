// Trackers: other programs that show a run, each with a flag of its own. To add one: write its sink
// (ops/tracking/NAME_sink.h) with its tracker, and add that in ops/tracking/trackers.cpp.
// Read next: ops/tracking/tensorboard_sink.h, ops/tracking/prometheus_sink.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/events/event_stream.h"
#include "train/options/options.h"

namespace trireme {

class Tracker {
 public:
  Tracker() = default;
  virtual ~Tracker() = default;
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// Declares its flag, whose value it keeps.
  virtual void declare(Flags& flags) = 0;
  /// Throws ExitCode::usage if what the flag asks for cannot be.
  virtual void validate(const RunOptions& run) const = 0;
  /// Called in the first rank's process before the data is loaded: takes what the system may refuse, such as a port.
  virtual void acquire() {}
  /// Called on the first rank: adds its sink, if the flag asks for it.
  virtual void add_sink(EventStream& events) = 0;
  /// Its flag, and a value that any run with a folder accepts: with it, the explorer checks that no number changes.
  virtual std::pair<std::string, std::string> example() const = 0;
};
using Trackers = std::vector<std::unique_ptr<Tracker>>;

Trackers all_trackers();
/// Declares the flags of all of them. Parsing `flags` sets values in `trackers`, which must still exist.
void declare_trackers(Flags& flags, const Trackers& trackers);

}  // namespace trireme
