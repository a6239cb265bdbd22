// What went wrong with a supervised run, when, and what it cost: a line each in OUT/incidents.jsonl, and a table at the
// end.
// Read next: train/supervisor/supervisor.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/supervisor/policy.h"

namespace trireme::supervisor {

using Time = std::chrono::system_clock::time_point;

struct Incident {
  Time when;                 ///< when the job was seen to have ended
  std::int64_t restart = 0;  ///< how often the job had been started again before
  std::string what;          ///< "a process was killed", "told to leave", cause_of() its message, ...
  Ending ending;
  std::optional<int> rank;        ///< when the job or its launcher named one
  std::string message;            ///< the job's FATAL line, without "trireme: FATAL[N] "; may be empty
  std::int64_t logged_step = -1;  ///< the last one in metrics.jsonl then; -1: none
  std::optional<std::int64_t>
      resumed_step;            ///< from which it was started again; -1: the beginning; not set: it was not
  int ranks = 0;               ///< that it goes on with; 0: as many as before
  std::optional<double> lost;  ///< seconds: work done again and time without training; not set: not known yet
};

/// In a few words what the message of a job that is worth starting again is about: a rank was lost, memory ran out, ...
/// Told by its component, as in "rank 5 (dp=1) step 120: [memory] out of host memory", or by what a library says.
std::string cause_of(std::string_view message);

/// One object: {"when":"2025-03-01T12:00:00Z","what":...}.
std::string to_json_line(const Incident& incident);
/// A line each under a line of headings, and a line with the sum of seconds.
std::string incident_table(const std::vector<Incident>& incidents);
std::string utc(Time time);  ///< "2025-03-01T12:00:00Z"

/// What a job says on standard error about its end.
class LastWords {
 public:
  void hear(std::string_view line);
  const std::optional<int>& rank() const { return rank_; }
  const std::string& message() const { return message_; }

 private:
  std::optional<int> rank_;
  std::string message_;
};

/// The step of the last whole line of metrics.jsonl; -1 when there is none. Reads its end only.
std::int64_t last_logged_step(const std::filesystem::path& metrics);

}  // namespace trireme::supervisor
