// The failures of a supervised run: what happened, when, and the time lost. Each is one line of OUT/incidents.jsonl; a
// table of all is printed at the end.
// Read next: ops/supervisor/supervisor.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/supervisor/policy.h"

namespace trireme::supervisor {

using Time = std::chrono::system_clock::time_point;
/// What durations are measured with: it never goes back. Clocks of the day and times of files are only shown or
/// compared for equality, because somebody may set them, and a file server has its own.
using Moment = std::chrono::steady_clock::time_point;

struct Incident {
  Time when;                 ///< when the supervisor saw that the job had ended
  std::int64_t restart = 0;  ///< restarts before this incident
  std::string what;          ///< a short description: "a process was killed", "told to leave", cause_of() the message,
                             ///< ...
  Ending ending;
  std::optional<int> rank;        ///< if the job or its launcher named one
  std::string message;            ///< the job's FATAL line, without "trireme: FATAL[N] "; may be empty
  std::int64_t logged_step = -1;  ///< the last step in metrics.jsonl at that time; -1: none
  std::optional<std::int64_t>
      resumed_step;            ///< the step that the restart resumed from; -1: the beginning; not set: no restart
  int ranks = 0;               ///< ranks of the restarted job; 0: as many as before
  std::optional<double> lost;  ///< seconds: repeated work and time without training; not set: not known yet
};

/// The cause of a retryable failure in a few words: a rank was lost, memory ran out, ... Found from the component in
/// the message, as in "rank 5 (dp=1) step 120: [memory] out of host memory", or from a library's error text.
std::string cause_of(std::string_view message);

/// One JSON object: {"when":"2025-03-01T12:00:00Z","what":...}.
std::string to_json_line(const Incident& incident);
/// A line of headings, one line per incident, and a line with the sum of the lost seconds.
std::string incident_table(const std::vector<Incident>& incidents);
std::string utc(Time time);  ///< "2025-03-01T12:00:00Z"

/// Collects from a job's standard error what it says about its end.
class FailureMessage {
 public:
  void add_line(std::string_view line);
  const std::optional<int>& rank() const { return rank_; }
  const std::string& message() const { return message_; }
  const std::optional<int>& code() const { return code_; }  ///< N of "FATAL[N]"; not set without such a message

 private:
  std::optional<int> code_;
  std::optional<int> rank_;
  std::string message_;
};

/// The step in the last complete line of metrics.jsonl; -1 if there is none. Reads only the end of the file.
std::int64_t last_logged_step(const std::filesystem::path& metrics);

}  // namespace trireme::supervisor
