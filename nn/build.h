// Build: what a layer needs to know to make its parameters: mesh, device, dtype, seed, and the name so far. A model
// passes `b / "child"` down its constructors; parameters register themselves in the order they are made.
//
//   struct Block : nn::Module {
//     nn::LayerNorm norm;  nn::Mlp mlp;
//     Block(const nn::Build& b, std::int64_t width) : Module(b), norm(b / "norm", width), mlp(b / "mlp", ...) {}
//   };
// Read next: parallel/parameters/parameter.h, nn/module.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/init.h"
#include "nn/routing.h"
#include "parallel/parameters/buffer.h"
#include "parallel/parameters/parameter.h"
#include "parallel/parameters/unit.h"

namespace trireme::nn {

class KvCache;
class ModuleBase;
struct LoraOptions;

/// Whether `name` is below `base` in the tree of names: "blocks.3.norm" is below "blocks.3" and "", and not below
/// "blocks.30".
bool is_below(std::string_view name, std::string_view base);
/// The rest of a name that is below `base`: "norm" of "blocks.3.norm" in "blocks.3".
std::string_view name_within(std::string_view name, std::string_view base);

/// What changes from one forward to the next. Shared by all modules of a model; set by the model's caller.
struct RunState {
  bool training = true;  ///< false: all modules compute as in evaluation; of some modules: ModuleBase::eval()
  /// Global number (since step 0) of the sample in row 0: dropout masks are keyed by it. Set it before each forward in
  /// training; a layer that drops throws if nobody has.
  std::optional<std::int64_t> first_sample;
  /// [B, T] i32 of the micro-batch's whole sequences, on the host: where each token's document begins
  /// (nn/documents.h); undefined: a sequence is one document.
  Tensor document_starts;
  /// [B, T] i32 of the micro-batch's whole sequences, on the host: the position of each token, if it is not its place
  /// in the sequence, as in documents whose positions begin again, and in texts with padding in front. Undefined: 0 to
  /// T - 1. Masks do not depend on it.
  Tensor positions;
  /// Evaluation only: keys and values of earlier tokens (nn/kv_cache.h). Forward is then given only the n new tokens,
  /// and document_starts and positions [B, n] are theirs. Null: forward is given whole sequences.
  std::shared_ptr<KvCache> cache;
  double loss_scale = 1;            ///< multiplies the loss, and layers' own losses (optim/loss_scaler.h)
  std::int64_t step_sequences = 0;  ///< sequences in the step's global batch: layers' own losses are means over them
};

/// What forward does not keep for backward; backward recomputes it (Chen et al. 2016).
struct Recompute {
  /// How much is recomputed.
  enum class Kind : std::uint8_t {
    none,
    selective,  ///< the outputs of norms and activations, recomputed from their inputs (autograd/node.h)
    blocks,     ///< everything but the input of every `every`-th block
  };
  Kind kind = Kind::none;
  int every = 1;

  /// Whether block `index` keeps only its input.
  bool of_block(int index) const { return kind == Kind::blocks && (index + 1) % every == 0; }
};

/// How attention works on a sequence that is cut over cp; see nn/context_attention.h.
enum class ContextParallel : std::uint8_t { ring, ulysses };

/// How the layers of a model use the mesh and memory, where there is a choice.
struct Parallelism {
  bool sequence = false;  ///< between blocks each tp rank holds T/tp positions (Korthikanti et al. 2022)
  ContextParallel context = ContextParallel::ring;
  Recompute recompute = {};

  /// The placement on tp of the residual stream [B, T, D], every layer's input and output: I, or S(1) under sequence
  /// parallelism.
  Placement residual() const { return sequence ? placement::S(1) : placement::I; }
};

/// What a layer needs to make its parameters: mesh, dtype, seed, device, and the name so far.
/// @snippet modules_test.cpp build
class Build {
 public:
  Build(std::shared_ptr<const DeviceMesh> mesh, DType dtype, std::uint64_t seed, const Parallelism& parallelism = {},
        Device device = Device::cpu);

  Build operator/(std::string_view child) const;  ///< the same, one level down in names
  /// The same, but it begins a unit (parallel/parameters/unit.h), like one of FSDP: parameters made with it or its
  /// children are gathered together before each use. To build a Module with it registers a use. `chunk`: Unit::chunk.
  Build unit(int chunk = 0) const;
  /// The same, but the Linear layers made with it or its children get adapters as `options` says: nn/lora.h.
  Build with_lora(const LoraOptions& options) const;
  /// The same, but parameters begin as zeros: for a model whose weights are loaded before they are used, since to draw
  /// random numbers takes much longer than to load. Those of adapters are drawn, because the file may lack them.
  Build to_be_loaded() const;
  /// The same, but parameters have no memory until something reads or writes their elements, which are drawn then. For
  /// stage 3 of ZeRO: it draws one after another and keeps shards, so the model need not fit into a rank's memory.
  Build drawn_on_use(bool on = true) const;
  const LoraOptions* lora() const;  ///< of a layer of this name; null: it gets no adapter
  bool begins_unit() const { return begins_unit_; }
  UnitUse use_unit() const;  ///< registers the next use of the unit; call it in the order of a forward
  Units& units() const { return *units_; }
  const DeviceMesh& mesh() const { return *mesh_; }
  const std::shared_ptr<const DeviceMesh>& shared_mesh() const { return mesh_; }
  const Parallelism& parallelism() const { return parallelism_; }
  Placement residual() const { return parallelism_.residual(); }
  /// The placement on tp of a parameter that is applied to the residual stream position by position. With T/tp
  /// positions on each rank its gradients are partial sums, so it is R.
  Placement per_position_placement() const { return parallelism_.sequence ? placement::R : placement::I; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }  ///< where parameters and buffers are, and what is computed with them
  std::uint64_t seed() const { return seed_; }
  const std::string& name() const { return name_; }
  const std::shared_ptr<RunState>& run_state() const { return run_state_; }

  /// Properties of a parameter besides its shape and placement.
  struct Options {
    std::int64_t logical_rows = -1;      ///< see Parameter::logical_rows; -1: all
    bool decay = false;                  ///< see Parameter::decay
    bool copy_of_earlier_stage = false;  ///< see Parameter::copy_of_earlier_stage
    bool hidden_matrix = false;          ///< see Parameter::hidden_matrix; needs two dims or more
  };
  /// Makes this rank's shard of a parameter, initialised and registered. Throws ExitCode::usage if it does not divide
  /// evenly, or if a parameter or buffer of this name exists already.
  ParameterPtr parameter(std::string_view child, const Shape& global, const Placements& placements, const Init& init,
                         const Options& options = {-1, false, false, false}) const;

  /// Makes this rank's shard of a buffer (parallel/parameters/buffer.h), filled with `value` and registered.
  BufferPtr buffer(std::string_view child, const Shape& global, const Placements& placements, double value = 0,
                   DType dtype = DType::f32) const;

  RoutingLog& routing() const { return *routing_; }
  /// All of the model made so far, through any Build that derives from the same one.
  const BufferList& buffers() const { return *buffers_; }
  const ParameterList& parameters() const { return *parameters_; }
  const std::vector<ModuleBase*>& modules() const { return *modules_; }  ///< those that exist
  // Of these, those whose names are below name().
  ParameterList parameters_below() const;
  BufferList buffers_below() const;
  std::vector<ModuleBase*> modules_below() const;  ///< also those of this name

 private:
  friend class ModuleBase;  // adds itself to the modules, and removes itself
  void require_new_name(const std::string& name, const Shape& global) const;

  std::shared_ptr<const DeviceMesh> mesh_;
  DType dtype_;
  Device device_;
  std::uint64_t seed_;
  Parallelism parallelism_;
  std::string name_;
  std::shared_ptr<ParameterList> parameters_;
  std::shared_ptr<BufferList> buffers_;
  std::shared_ptr<std::vector<ModuleBase*>> modules_;
  std::shared_ptr<RoutingLog> routing_;
  std::shared_ptr<Units> units_;
  Unit* unit_ = nullptr;
  bool begins_unit_ = false;
  bool to_be_loaded_ = false;
  bool drawn_on_use_ = false;
  std::shared_ptr<RunState> run_state_;
  std::shared_ptr<const LoraOptions> lora_;  // or null
};

}  // namespace trireme::nn
