// Parameter: a weight with its gradient, its place in the global tensor, and a name that no mesh changes. Layers make
// parameters; parallel/ sums their gradients and cuts them into shards; optimizers update the shards.
// Read next: nn/build.h (who makes parameters), parallel/data_parallel/grad_sync.h (who sums gradients).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/node.h"
#include "parallel/mesh/placement.h"

namespace trireme {

/// The part of a unit (parallel/parameters/unit.h) that its parameters know.
struct UnitState {
  std::string name;
  bool in_use = false;  ///< a forward is inside one of the unit's uses
};

/// Who adds up a parameter's gradient over ranks. There can be only one.
enum class GradientSum : std::uint8_t { nobody, grad_sync, zero };

struct Parameter {
  std::string name;  ///< "blocks.3.attn.qkv.weight": the same on every mesh
  /// This rank's shard; a leaf of the tape. For code that stores or updates weights: optimizers, ZeRO, checkpoints,
  /// checks. A forward must read value(): under ZeRO the elements here may be released, or be those of the previous
  /// step.
  Tensor local;
  Shape global_shape;     ///< of the whole tensor, padding included
  Placements placements;  ///< R along an axis: gradients are summed over it; S: squared norms are
  Rectangle rectangle;    ///< where `local` lies in the global tensor
  /// Rows of dim 0 that are not padding; the rest (padded vocabulary) never gets a gradient.
  std::int64_t logical_rows = 0;
  bool decay = false;  ///< whether weight decay applies: matrices only
  /// The last two dims are a matrix [out, in] between hidden features, which Muon orthogonalises (optim/muon.h); dims
  /// before them number matrices.
  bool hidden_matrix = false;
  /// A tied weight whose first copy lives on pipeline stage 0: not counted twice in norms or sizes.
  bool copy_of_earlier_stage = false;
  std::uint64_t seed = 0;  ///< its first values are a function of it
  /// Its gradient on a rank is one term of a sum over the mesh, as with dp > 1: the axes of gradient_axes().
  bool needs_sum = false;
  /// The mesh that it was made for; empty for one made by hand. See require_same_mesh().
  std::optional<MeshShape> made_for = {};
  GradientSum summed_by = GradientSum::nobody;
  /// The gradient is the sum over the mesh: finish() has been called since the last zero_grad(). See require_summed().
  bool gradient_summed = false;
  /// The memory of an optimizer's own copy: of a 16-bit weight in f32, or an average. Expired: there is none.
  std::weak_ptr<const MemoryPool::Block> optimizer_copy = {};
  /// Expired: no optimizer updates it.
  std::weak_ptr<const bool> optimizer = {};
  /// All parameters of the model so far, in the order they were made: Build::parameters(). Empty for one made by hand.
  std::weak_ptr<const std::vector<std::shared_ptr<Parameter>>> made_with = {};

  std::shared_ptr<const UnitState> unit;  ///< null: in no unit, and complete at any time

  /// False: the parameter is frozen. No backward computes its gradient, optimizers leave it as it is, and it is not
  /// part of a gradient norm. GradSync, Zero and optimizers look at this when they are made.
  bool requires_grad() const { return local.requires_grad(); }
  /// Freezes the parameter, and drops its gradient; or trains it again. Throws ExitCode::usage while a GradSync or Zero
  /// has the parameter. All ranks with a part or a copy of the parameter must do the same.
  void set_requires_grad(bool on);
  std::shared_ptr<Node> frozen_leaf;  ///< of a frozen parameter: its leaf, with all settings

  /// `local`, for a forward. Throws ExitCode::internal outside the uses of the parameter's unit, on any mesh and with
  /// or without ZeRO. A backward may read it at any time: it repeats the reads of a forward.
  const Tensor& value() const;
  /// Throws ExitCode::internal if `local` was taken off the tape.
  Leaf& leaf() const;
  /// f32, of local's shape; set up by GradSync or ZeroGradients, or by a program without them; else undefined until a
  /// backward reaches the parameter.
  Tensor& grad() const { return leaf().grad(); }
  /// grad(), for code that needs it. Throws ExitCode::internal, naming `where`, if it is undefined.
  const Tensor& defined_grad(std::string_view where) const;
  /// For code that needs the gradient of the whole batch: clipping, optimizers. Throws ExitCode::usage, naming `where`,
  /// if this rank's gradient is still one term of a sum over ranks, or is Zero's, which keeps pieces of its own.
  void require_summed(std::string_view where) const;
};

using ParameterPtr = std::shared_ptr<Parameter>;  ///< shared by the layer, optimizers and ZeRO
using ParameterList = std::vector<ParameterPtr>;  ///< in the order the model made them

/// As Parameter::set_requires_grad() of each.
void set_requires_grad(const ParameterList& parameters, bool on);
/// Those that are not frozen.
ParameterList trained(const ParameterList& parameters);
/// Whether the whole name fits a pattern, in which * stands for any characters and ? for one.
bool name_fits(std::string_view name, std::string_view pattern);
/// Whether it fits one of several patterns, separated by commas.
bool name_fits_any(std::string_view name, std::string_view patterns);
/// Those whose name fits a pattern, in which * stands for any characters and ? for one: "*.bias",
/// "blocks.?.norm*.weight". Throws ExitCode::usage, with the nearest names, if there are none; with pp > 1, when a
/// stage may have none, pass `or_none`.
ParameterList matching(const ParameterList& parameters, std::string_view pattern, bool or_none = false);
/// Starts a step without GradSync or Zero: sets all gradients to 0, also those that no backward has made yet. Skips
/// frozen parameters. Throws ExitCode::usage if a GradSync or Zero has one of the parameters: call its zero_grad().
void zero_grad(const ParameterList& parameters);
/// Says that a loop of your own, without GradSync or Zero, has added up the gradients over ranks. Until the next
/// zero_grad(), clipping and optimizers then take them. Throws ExitCode::usage if a GradSync or Zero has one of the
/// parameters.
void mark_gradients_summed(const ParameterList& parameters);

/// Throws ExitCode::usage, naming `where`, if a parameter was made for a mesh of another shape: its sums over that of
/// the argument would be those of other ranks, or of none.
void require_same_mesh(std::string_view where, const ParameterList& parameters, const DeviceMesh& mesh);
/// Throws ExitCode::internal, naming `where`, if the list is empty, or has a null parameter or one twice.
void check_parameters(std::string_view where, const ParameterList& parameters);

}  // namespace trireme
