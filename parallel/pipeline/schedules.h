// The schedules that --pipeline offers, in one table. Help, errors, the parity matrix, the explorer, the pictures and
// the tests of all schedules are made from it. A new schedule is a generator in schedule.cpp and an entry in
// schedules.cpp.
// Read next: parallel/pipeline/schedule.h (the generators), parallel/pipeline/check.h.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace trireme::pipeline {

/// An entry of the table of schedules.
struct ScheduleKind {
  std::string_view name;
  /// Exactly one is set. `make`: one stage on every rank. `make_with_chunks`: `chunks` stages on every rank; --pipeline
  /// spells it NAME:V, where V is the number of chunks.
  Schedule (*make)(int ranks, int microbatches) = nullptr;
  Schedule (*make_with_chunks)(int ranks, int microbatches, int chunks) = nullptr;
  std::string_view help{};  ///< what distinguishes it, for --help; may be empty
};
/// The table.
std::span<const ScheduleKind> schedule_kinds();

/// "gpipe|1f1b|..." with "|" as separator; NAME:V for a schedule with chunks.
std::string schedule_spellings(std::string_view separator);
/// The help of --pipeline.
std::string schedule_help();
/// A value of --pipeline for every schedule, for tests and drawn runs.
std::vector<std::string> schedule_examples(int chunks = 2);

/// The schedule --pipeline names. One rank has no pipeline: it runs 1f1b (gradient accumulation with one micro-batch
/// alive) unless it has several chunks. Throws ExitCode::usage for another name or a count under 1.
Schedule make_schedule(std::string_view name, int ranks, int microbatches);

/// Stages per rank: V of NAME:V, 1 of every other name. Throws ExitCode::usage for names that make_schedule refuses.
int chunks_per_rank(std::string_view name);

}  // namespace trireme::pipeline
