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
  std::vector<Picture> all = {{"mesh.svg", draw_mesh()},
                              {"tensor-parallel.svg", draw_tensor_parallel()},
                              {"sequence-parallel.svg", draw_sequence_parallel()},
                              {"zero.svg", draw_zero()},
                              {"ring-attention.svg", draw_ring_attention()},
                              {"experts.svg", draw_experts()}};
  for (Picture& picture : draw_pipelines()) all.push_back(std::move(picture));
  return all;
}

void run_on_mesh(const std::string& text, const std::function<void(const std::shared_ptr<const DeviceMesh>&)>& body) {
  const MeshShape shape = parse_mesh(text, 0);
  run_thread_ranks(shape.ranks(), 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    body(std::make_shared<const DeviceMesh>(world, shape));
  });
}

}  // namespace trireme::pictures
