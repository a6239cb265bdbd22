// Builds a GPT from options. Read next: train/gpt/gpt_task.h, train/step/rank_memory.h.
#pragma once

#include <memory>

#include "models/gpt.h"
#include "train/gpt/gpt_options.h"

namespace trireme {

/// The blocks of each stage of a GPT on the mesh.
pipeline::StagePlan gpt_plan(const MeshOptions& mesh, const GptConfig& config);

/// This rank's part of a GPT. `to_be_loaded`: without random weights, which the caller replaces.
std::unique_ptr<Gpt> make_gpt(const TrainOptions& options, const GptConfig& config,
                              std::shared_ptr<const DeviceMesh> mesh, bool to_be_loaded = false);

/// Bytes that a library allocates besides tensors: in the backward of attention, cuDNN keeps the gradient of one
/// layer's scores, 16 bits each. Ulysses splits heads over cp; ring attention does not use cuDNN.
double gpt_workspace_bytes(const TrainOptions& options, const GptConfig& config);

}  // namespace trireme
