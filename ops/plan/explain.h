// plan --explain: from FLOPs to tokens per second in words and numbers, for one choice. Each line of time is what the
// step would not take if that cause did not exist; together they are the step.
// Read next: ops/plan/explain.cpp, docs/planner.md.
#pragma once

#include <string>

#include "ops/plan/report.h"

namespace trireme::plan {

/// Lines of text.
std::string explain(const Question& question, const Choice& choice);

}  // namespace trireme::plan
