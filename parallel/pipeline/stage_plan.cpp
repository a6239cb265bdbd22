#include "parallel/pipeline/stage_plan.h"

#include <cstddef>

#include "core/error.h"

namespace trireme::pipeline {

std::vector<BlockRange> stage_plan(int layers, int stages) {
  if (stages < 1) fail(ExitCode::usage, "pipeline", "expected at least 1 stage, got {}; change --mesh pp", stages);
  if (layers < stages) {
    fail(ExitCode::usage, "pipeline",
         "{} layers cannot fill {} pipeline stages; expected at least one layer per stage; raise --layers or lower pp "
         "in --mesh",
         layers, stages);
  }
  std::vector<BlockRange> plan(static_cast<std::size_t>(stages), BlockRange{0, layers / stages});
  const int left_over = layers % stages;  // at most stages - 1: the last stage never gets one
  for (int i = 1; i <= left_over; ++i) ++plan[static_cast<std::size_t>(i <= stages - 2 ? i : 0)].count;
  for (std::size_t stage = 1; stage < plan.size(); ++stage) plan[stage].first = plan[stage - 1].end();
  return plan;
}

}  // namespace trireme::pipeline
