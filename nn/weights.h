// Saves and loads the weights (and buffers) of a module or a model, in a .safetensors file that Python reads.
//
//   nn::save_weights(model, "model.safetensors");
//   nn::load_weights(model, "model.safetensors");
//   nn::load_weights(encoder, "theirs.safetensors",                     // a part of another program's file
//                    {.strict = false, .prefix = "bert.encoder.",
//                     .name_in_file = [](const std::string& name) { return to_their_name(name); }});
//
// Names in the file are those within the module: "norm.weight", also if the module is "blocks.3". Tensors are whole and
// without padding, so any mesh and any ZeRO stage loads what another has saved, and the same weights give the same
// bytes. Both functions are collective: all ranks that have the module call them, between steps. For a module that is
// on one pipeline stage, these are the ranks of that stage.
//
// Load before an optimizer is made: it may keep f32 copies of 16-bit weights, or averages. The optimizer's state and
// the progress of a run are in checkpoints, not here: parallel/checkpoint/saver.h.
// These functions are in trireme_checkpoint. Read next: parallel/checkpoint/weights.h (options, report, errors).
#pragma once

#include <filesystem>
#include <memory>
#include <type_traits>
#include <vector>

#include "nn/module_base.h"
#include "parallel/checkpoint/weights.h"

namespace trireme::nn {

using checkpoint::LoadOptions;
using checkpoint::LoadReport;
using checkpoint::SaveOptions;

namespace detail {

/// What a module or a model holds on this rank, and the ranks that hold the rest.
struct HeldWeights {
  std::vector<checkpoint::HeldTensor> tensors;
  std::shared_ptr<ProcessGroup> of_stage;  ///< null: the whole world
  ProcessGroup* group;
};

/// The ranks of this rank's pipeline stage. Collective over them.
inline std::shared_ptr<ProcessGroup> stage_group(const DeviceMesh& mesh) {
  std::vector<int> ranks;
  for (int data = 0; data < mesh.size(Axis::data); ++data)
    for (int tp = 0; tp < mesh.size(Axis::tp); ++tp) ranks.push_back(mesh.world_rank(mesh.coord(Axis::pp), data, tp));
  return mesh.world().subgroup(ranks, fmt::format("stage {}", mesh.coord(Axis::pp)));
}

inline Units& units_of(const ModuleBase& module) { return module.build().units(); }
template <class M>
requires(!std::is_base_of_v<ModuleBase, M>) Units& units_of(M& model) { return model.units(); }

inline HeldWeights held_weights(const ModuleBase& module) {
  const Build& b = module.build();
  HeldWeights held{checkpoint::held_weights(module.parameters(), module.buffers(), b.units(), b.mesh(), b.name()),
                   b.mesh().size(Axis::pp) > 1 ? stage_group(b.mesh()) : nullptr, &b.mesh().world()};
  if (held.of_stage) held.group = held.of_stage.get();
  for (checkpoint::HeldTensor& tensor : held.tensors) tensor.written_by_earlier_stage = false;  // it is not here
  return held;
}

/// Of a Model (models/model.h).
template <class M>
requires(!std::is_base_of_v<ModuleBase, M>) HeldWeights held_weights(M& model) {
  return {checkpoint::held_weights(model.parameters(), model.buffers(), model.units(), model.mesh(), ""), nullptr,
          &model.mesh().world()};
}

}  // namespace detail

/// `model`: a module, or a Model. Throws as checkpoint::write_weights().
/// @snippet modules_test.cpp weights
template <class M>
void save_weights(M& model, const std::filesystem::path& path, const SaveOptions& options = {}) {
  const detail::HeldWeights held = detail::held_weights(model);
  checkpoint::write_weights(path, held.tensors, *held.group, options);
}

/// The same. Throws as checkpoint::read_weights(), and ExitCode::usage if an optimizer keeps copies of the weights.
template <class M>
LoadReport load_weights(M& model, const std::filesystem::path& path, const LoadOptions& options = {}) {
  for (const ParameterPtr& parameter : model.parameters())
    if (!parameter->optimizer_copy.expired())
      fail(ExitCode::usage, "load_weights",
           "an optimizer keeps a copy of {}, in f32 or as an average, which would not have the values of {}; expected "
           "weights of which there is no copy; load them before you make the optimizer",
           parameter->name, path.string());
  const detail::HeldWeights held = detail::held_weights(model);
  LoadReport report = checkpoint::read_weights(path, held.tensors, *held.group, options);
  UnitObserver* const observer = detail::units_of(model).observer();
  if (observer != nullptr) observer->forget_hashes();
  return report;
}

}  // namespace trireme::nn
