#include "train/loop/task.h"

namespace trireme {

std::int64_t Task::parameters() const {
  std::int64_t count = 0;
  const std::unique_ptr<Model> model =
      make(on_one_rank(options()), std::make_shared<const DeviceMesh>(self_group(), MeshShape{}));
  for (const nn::ParameterPtr& parameter : model->parameters()) count += parameter->global_shape.count();
  return count;
}

ParityModel parity_model(const Task& task) {
  return {.make = [&task](const TrainOptions& options,
                          std::shared_ptr<const DeviceMesh> mesh) { return task.make(options, std::move(mesh)); },
          .data = [&task](const TrainOptions& options) { return task.parity_data(options); }};
}

}  // namespace trireme
