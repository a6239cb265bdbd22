// plan --explain: from FLOPs to tokens per second in words and numbers, for one choice. Its lines of time add up
// to the step.
// Read next: ops/plan/explain.cpp, docs/planner.md.
#pragma once

#include <string>

#include "ops/plan/report.h"

namespace trireme::plan {

/// Lines of text.
std::string explain(const Question& question, const Choice& choice);

}  // namespace trireme::plan
