// Makes steps of a trace: joins the two ends of a message and all ranks' parts of a collective, and finds for each wait
// which rank it was for. Read next: ops/view/steps.cpp, ops/view/profile.h.
#pragma once

#include "ops/view/trace_file.h"

namespace trireme::run_view {

/// Throws ExitCode::data if a rank has no step, or another number of them than rank 0. `path`: for the message.
Profile profile_of(TraceFile trace, const std::filesystem::path& path);

}  // namespace trireme::run_view
