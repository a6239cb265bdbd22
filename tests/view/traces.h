// Small traces for tests: text as --profile writes it. Read next: tests/view/steps_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "ops/view/steps.h"
#include "train/report/profiling.h"

namespace trireme::run_view {

/// A trace of these ranks with the mesh "dp=2,tp=1,pp=1", in the format of train/report/profiling.h.
inline std::string trace_text(const std::vector<RankTrace>& ranks, const std::string& mesh = "dp=2,tp=1,pp=1",
                              const std::string& weights = "") {
  std::string events;
  for (const RankTrace& rank : ranks) events += (events.empty() ? "" : ",\n") + trace_events(rank);
  return std::string(Profiling::trace_beginning) + "\"ms\", \"otherData\": {\"mesh\": \"" + mesh +
         "\", \"pipeline\": \"1f1b\", \"micro-batches\": 1, \"device\": \"cpu\", \"threads\": 1, \"cores\": 2},\n" +
         "\"parameters\": [" + weights + "],\n\"traceEvents\": [\n" + events + "\n]}\n";
}

inline ProfileEvent event(const char* category, const std::string& name, double begin, double end, int lane = 0) {
  return {.category = category, .name = name, .detail = {}, .lane = lane, .begin = begin, .seconds = end - begin};
}

/// The wait for a sum over dp, and the sum.
inline std::vector<ProfileEvent> sum_of(double begin, double end, std::uint64_t number = 1) {
  ProfileEvent sum = event("collective", "all_reduce(sum of 8 f32) of dp[pp=0,tp=0]", begin + 1e-6, end - 1e-6);
  sum.transfer = ProfileTransfer{.group = "dp[pp=0,tp=0]", .site = "blocks.0.attn", .bytes = 32, .number = number};
  return {event("collective", "wait", begin, end), event("collective", "run", begin + 1e-6, end - 1e-6), sum};
}

/// Two ranks in a step of 100 ms. Rank 1 works 60 ms in its backward and rank 0 20 ms, and then they sum.
inline std::vector<RankTrace> slow_rank() {
  std::vector<RankTrace> ranks;
  for (const int rank : {0, 1}) {
    const double ready = rank == 0 ? 0.050 : 0.090;
    RankTrace& trace = ranks.emplace_back(RankTrace{rank, "rank", rank == 0 ? "h1" : "h2", {}});
    trace.events = {event("kernel", "gemm", 0.012, 0.015), event("module", "blocks.0", 0.011, 0.029),
                    event("pipeline", "forward stage 0 micro-batch 0", 0.010, 0.030),
                    event("pipeline", "backward stage 0 micro-batch 0", 0.030, ready)};
    const std::vector<ProfileEvent> sum = sum_of(ready, 0.095);
    trace.events.insert(trace.events.end(), sum.begin(), sum.end());
    trace.events.push_back(event("phase", "optimizer", 0.096, 0.100));
    trace.events.push_back(event("step", "step 3", 0.0, 0.100));
    trace.memory = {{0.001, {100}}, {0.040, {100, 50, 0, 1000L * (rank + 1)}}, {0.050, {100, 50}}};
  }
  return ranks;
}

}  // namespace trireme::run_view
