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

DryProgram dry_program(const ParityModel& model, const TrainOptions& options) {
  TrainOptions one = options;
  one.mesh.shape = {};
  one.batch = {.micro_batch = 1, .global_batch = std::nullopt, .micro_batches = 1};
  DryProgram program{.model = model.make, .sample = model.data(one).batch.tensors};
  for (auto& [name, tensor] : program.sample) tensor = view::slice(tensor, 0, 0, 1);  // [1, ..]
  return program;
}

}  // namespace trireme
