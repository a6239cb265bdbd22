#include "examples/pictures/pictures.h"

#include "examples/pictures/schedule.h"
#include "parallel/pipeline/schedule.h"

namespace trireme::pictures {

namespace {

/// Four ranks and eight micro-batches. All schedules have the same time scale, so that the pictures can be compared.
/// With V stages on a rank, a stage has a V-th of the work.
std::string draw_pipeline(const std::string& name) {
  constexpr double pixels_per_unit = 20;
  const pipeline::Schedule schedule = pipeline::make_schedule(name, 4, 8);
  return draw_schedule(schedule, {}, pixels_per_unit / schedule.chunks());
}

}  // namespace

std::vector<Picture> draw_all() {
  return {{"mesh.svg", draw_mesh()},
          {"tensor-parallel.svg", draw_tensor_parallel()},
          {"sequence-parallel.svg", draw_sequence_parallel()},
          {"zero.svg", draw_zero()},
          {"ring-attention.svg", draw_ring_attention()},
          {"experts.svg", draw_experts()},
          {"gpipe.svg", draw_pipeline("gpipe")},
          {"1f1b.svg", draw_pipeline("1f1b")},
          {"interleaved.svg", draw_pipeline("interleaved:2")},
          {"zero-bubble.svg", draw_pipeline("zero-bubble")}};
}

void run_on_mesh(const std::string& text, const std::function<void(const std::shared_ptr<const DeviceMesh>&)>& body) {
  const MeshShape shape = parse_mesh(text, 0);
  run_thread_ranks(shape.ranks(), 1, ProcessGroup::Deadline(60), [&](const std::shared_ptr<ProcessGroup>& world) {
    body(std::make_shared<const DeviceMesh>(world, shape));
  });
}

}  // namespace trireme::pictures
