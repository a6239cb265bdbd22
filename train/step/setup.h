// Makes objects from options, for every training program.
// Read next: train/step/trainer.h; train/gpt/gpt_setup.h for those of a GPT.
#pragma once

#include <memory>

#include "nn/build.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "train/options/options.h"

namespace trireme {

/// The build parameters for the layers of a model.
nn::Build make_build(const TrainOptions& options, std::shared_ptr<const DeviceMesh> mesh);
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerOptions& options, const ShardList& shards);
optim::LrSchedule make_lr_schedule(const ScheduleOptions& options);

}  // namespace trireme
