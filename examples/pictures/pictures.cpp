#include "examples/pictures/pictures.h"

#include "examples/pictures/schedule.h"
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

}  // namespace

std::vector<Picture> draw_all() {
  std::vector<Picture> all = {{"mesh.svg", draw_mesh()}};
  for (Picture& picture : draw_pipelines()) all.push_back(std::move(picture));
  return all;
}

}  // namespace trireme::pictures
