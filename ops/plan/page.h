// plan --page: the answer as an HTML page that needs no other file: the text of the terminal, the simulated step of the
// fastest settings, its memory, and memory against time of all that were simulated.
// Read next: ops/plan/page.cpp, ops/plan/step_picture.h.
#pragma once

#include <string>

#include "ops/plan/report.h"

namespace trireme::plan {

/// `recording`: of the first of the answer's choices; it must have one.
std::string to_html(const Answer& answer, const Recording& recording);

}  // namespace trireme::plan
