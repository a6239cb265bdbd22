// IncidentLog: a supervised run's incidents in OUT/incidents.jsonl. The last one is open until training goes on,
// because only then it is known how much time was lost; it is written when it is closed.
// Read next: ops/supervisor/incidents.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ops/supervisor/incidents.h"

namespace trireme::supervisor {

class IncidentLog {
 public:
  explicit IncidentLog(std::filesystem::path out) : out_(std::move(out)) {}

  /// Begins an incident, which happens `now`. If the last one is still open, the job since then made no step: closes it
  /// first. `good_until`: work done until then is not lost.
  void add(Incident incident, Moment now, Moment good_until);
  bool open() const { return open_; }
  /// How the job was started again; nothing if no incident is open.
  void set_ranks(int ranks);
  void set_resumed_step(std::int64_t step);
  /// Closes the open incident: the job trains again, or failed again, `now`. Returns the seconds that were lost.
  double close(Moment now);
  /// At the end of the run: writes an open incident, whose lost time remains unknown.
  void finish();

  const std::vector<Incident>& all() const { return incidents_; }

 private:
  void write_last();

  std::filesystem::path out_;
  std::vector<Incident> incidents_;
  bool open_ = false;    // the last incident
  Moment good_until_{};  // of the open incident
};

}  // namespace trireme::supervisor
