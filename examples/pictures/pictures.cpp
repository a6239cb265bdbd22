#include "examples/pictures/pictures.h"

#include <fmt/core.h>

#include <numeric>

#include "examples/pictures/schedule.h"
#include "ops/plot/messages.h"
#include "parallel/comm/algorithms/algorithm.h"
#include "parallel/pipeline/schedules.h"

namespace trireme::pictures {

namespace {

/// Each schedule on four ranks with eight micro-batches, as docs/pictures/NAME.svg. All have one time scale, so that
/// the pictures can be compared. With V stages on a rank, a stage has a V-th of the work.
std::vector<Picture> draw_pipelines() {
  constexpr double pixels_per_unit = 20;
  std::vector<Picture> pictures;
  for (const std::string& name : pipeline::schedule_examples()) {
    const pipeline::Schedule schedule = pipeline::make_schedule(name, 4, 8);
    pictures.push_back(
        {name.substr(0, name.find(':')) + ".svg", draw_schedule(schedule, {}, pixels_per_unit / schedule.chunks())});
  }
  return pictures;
}

/// The messages of an all-reduce of 64 KiB among eight ranks, on links of 10 us and 1 GB/s.
std::string draw_all_reduce(comm::Algorithm algorithm) {
  constexpr int ranks = 8;
  constexpr std::int64_t chunk = (64 << 10) / ranks;
  comm::Links links;
  links.between = {.latency = 10e-6, .seconds_per_byte = 1e-9};
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  return draw_messages(fmt::format("all_reduce of {} ranks by {}", ranks, name(algorithm)), ranks,
                       simulate(all_steps(algorithm, {.kind = comm::CollectiveKind::all_reduce, .ranks = ranks}),
                                members, links, [](int, int) { return chunk; }));
}

}  // namespace

std::vector<Picture> draw_all() {
  std::vector<Picture> all = {{"mesh.svg", draw_mesh()},
                              {"ring.svg", draw_all_reduce(comm::Algorithm::ring)},
                              {"halving.svg", draw_all_reduce(comm::Algorithm::halving)}};
  for (Picture& picture : draw_pipelines()) all.push_back(std::move(picture));
  return all;
}

}  // namespace trireme::pictures
