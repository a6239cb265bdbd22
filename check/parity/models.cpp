#include "check/parity/models.h"

#include "train/gpt/comparison_batch.h"
#include "train/gpt/gpt_setup.h"

namespace trireme {

ParityModel parity_model(const Task& task) {
  return {.make = [&task](const TrainOptions& options,
                          std::shared_ptr<const DeviceMesh> mesh) { return task.make(options, std::move(mesh)); },
          .data = [&task](const TrainOptions& options) { return task.parity_data(options); }};
}

ParityModel gpt_parity(const GptConfig& config) {
  return {.make = [config](const TrainOptions& o, std::shared_ptr<const DeviceMesh> mesh) -> std::unique_ptr<Model> {
            return make_gpt(o, config, std::move(mesh));
          },
          .data = [config](const TrainOptions& o) { return comparison_batch(o, config); }};
}

}  // namespace trireme
