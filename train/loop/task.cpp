#include "train/loop/task.h"

namespace trireme {

ParityModel parity_model(const Task& task) {
  return {.make = [&task](const TrainOptions& options,
                          std::shared_ptr<const DeviceMesh> mesh) { return task.make(options, std::move(mesh)); },
          .data = [&task](const TrainOptions& options) { return task.parity_data(options); }};
}

}  // namespace trireme
