#include "ops/supervisor/incident_log.h"

#include "core/error.h"
#include "core/io.h"
#include "ops/supervisor/say.h"
#include "train/runs/run_folder.h"

namespace trireme::supervisor {

void IncidentLog::add(Incident incident, Moment now, Moment good_until) {
  if (open_) close(now);
  incidents_.push_back(std::move(incident));
  good_until_ = good_until;
  open_ = true;
}

void IncidentLog::set_ranks(int ranks) {
  if (open_) incidents_.back().ranks = ranks;
}

void IncidentLog::set_resumed_step(std::int64_t step) {
  if (open_) incidents_.back().resumed_step = step;
}

double IncidentLog::close(Moment now) {
  const double lost = std::chrono::duration<double>(now - good_until_).count();
  incidents_.back().lost = lost;
  write_last();
  return lost;
}

void IncidentLog::finish() {
  if (open_) write_last();
}

void IncidentLog::write_last() {
  open_ = false;
  try {
    make_directories(out_);
    AppendFile(out_ / RunFolder::incidents_name).line(to_json_line(incidents_.back()));
  } catch (const Error& error) { say("an incident could not be noted: {}", error.what()); }
}

}  // namespace trireme::supervisor
