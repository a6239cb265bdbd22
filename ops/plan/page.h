// plan --page: the answer as a page of `view`: the text of the terminal, the simulated step of the fastest settings, its
// memory, and memory against time of all that were simulated.
// Read next: ops/plan/page.cpp, ops/view/page.h.
#pragma once

#include "ops/plan/report.h"
#include "ops/view/page.h"

namespace trireme::plan {

/// A simulated step as `view` draws it: of all ranks, or of those of one pipeline, as a mesh of pp alone.
run_view::Profile profile_of(const Recording& recording, const TrainOptions& options);

/// `recording`: of the first of the answer's choices; it must have one.
run_view::Page page_of(const Answer& answer, const Recording& recording);

/// Of a step that is predicted for this machine; `title`: names the model.
run_view::Page page_here(const std::string& title, const TrainOptions& options, const Recording& recording);

}  // namespace trireme::plan
