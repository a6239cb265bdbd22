// Makes objects from options, for every training program.
// Read next: train/step/trainer.h; train/gpt/gpt_setup.h for those of a GPT.
#pragma once

#include <memory>

#include "models/model.h"
#include "nn/build.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/options/options.h"

namespace trireme {

/// The build parameters for the layers of a model. With RunOptions::loads_weights: nn::Build::to_be_loaded(); with
/// --zero 3: nn::Build::drawn_on_use().
nn::Build make_build(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh);
/// The model with the parameters frozen whose names fit --freeze. Collective over its mesh.
std::unique_ptr<Model> with_frozen(std::unique_ptr<Model> model, const std::string& patterns);
/// Collective over `mesh`, which must outlive the optimizer.
std::unique_ptr<optim::Optimizer> make_optimizer(const TrainOptions& options, const ShardList& shards,
                                                 const DeviceMesh& mesh);
/// The schedule that the options describe.
optim::LrSchedule make_lr_schedule(const ScheduleOptions& options);

}  // namespace trireme
