#include "nn/build.h"

#include <algorithm>
#include <cmath>

#include "nn/lora.h"
#include "nn/module_base.h"

namespace trireme::nn {
namespace {

template <class List>
List below(const List& all, const std::string& base) {
  List chosen;
  for (const auto& item : all)
    if (is_below(item->name, base)) chosen.push_back(item);
  return chosen;
}

}  // namespace

bool is_below(std::string_view name, std::string_view base) {
  return base.empty() || (name.size() > base.size() && name[base.size()] == '.' && name.starts_with(base));
}

std::string_view name_within(std::string_view name, std::string_view base) {
  return base.empty() ? name : name.substr(std::min(name.size(), base.size() + 1));
}

Build::Build(std::shared_ptr<const DeviceMesh> mesh, DType dtype, std::uint64_t seed, const Parallelism& parallelism,
             Device device)
    : mesh_(std::move(mesh)),
      dtype_(dtype),
      device_(device),
      seed_(seed),
      parallelism_(parallelism),
      parameters_(std::make_shared<ParameterList>()),
      buffers_(std::make_shared<BufferList>()),
      modules_(std::make_shared<std::vector<ModuleBase*>>()),
      routing_(std::make_shared<RoutingLog>()),
      units_(std::make_shared<Units>()),
      run_state_(std::make_shared<RunState>()) {
  require(mesh_ != nullptr, "build",
          "the mesh is null; expected one, of one rank at least: make_shared<const DeviceMesh>("
          "self_group(), MeshShape())");
  require(is_floating(dtype), "build", "parameters of {}; expected a floating dtype: f32, bf16, f16 or f64",
          trireme::name(dtype));
}

Build Build::operator/(std::string_view child) const {
  require(!child.empty(), "build", "an empty name below '{}'; expected one for each layer: b / \"name\"", name_);
  Build result = *this;
  result.begins_unit_ = false;
  result.name_ = name_.empty() ? std::string(child) : fmt::format("{}.{}", name_, child);
  return result;
}

Build Build::unit(int chunk) const {
  Build result = *this;
  result.unit_ = units_->add(name_.empty() ? "model" : name_, chunk);
  result.begins_unit_ = true;
  return result;
}

Build Build::with_lora(const LoraOptions& options) const {
  if (options.rank < 1)
    fail(ExitCode::usage, "lora", "a rank of {}; expected at least 1; set LoraOptions::rank", options.rank);
  if (!(options.dropout >= 0 && options.dropout < 1))
    fail(ExitCode::usage, "lora", "a dropout of {}; expected at least 0 and less than 1; set LoraOptions::dropout",
         options.dropout);
  Build result = *this;
  result.lora_ = std::make_shared<const LoraOptions>(options);
  return result;
}

Build Build::to_be_loaded() const {
  Build result = *this;
  result.to_be_loaded_ = true;
  return result;
}

Build Build::drawn_on_use(bool on) const {
  Build result = *this;
  result.drawn_on_use_ = on;
  return result;
}

const LoraOptions* Build::lora() const { return lora_ != nullptr && lora_->adapts(name_) ? lora_.get() : nullptr; }

ParameterList Build::parameters_below() const { return below(*parameters_, name_); }
BufferList Build::buffers_below() const { return below(*buffers_, name_); }

std::vector<ModuleBase*> Build::modules_below() const {
  std::vector<ModuleBase*> chosen;
  for (ModuleBase* module : *modules_)
    if (module->name() == name_ || is_below(module->name(), name_)) chosen.push_back(module);
  return chosen;
}

UnitUse Build::use_unit() const { return unit_ == nullptr ? UnitUse() : UnitUse(units_, units_->add_use(unit_)); }

// Two tensors of one name would start with equal values, and a checkpoint could hold one of them only.
void Build::require_new_name(const std::string& name, const Shape& global) const {
  const auto refuse = [&](const char* kind, const Shape& first, const std::string& where) {
    fail(ExitCode::usage, "build",
         "'{}' is registered twice: first as a {} {}{}, now with the shape {}{}; expected a name of its own for each; "
         "give one of the two layers another name: b / \"name\"",
         name, kind, to_string(first), where, to_string(global),
         unit_ == nullptr ? "" : fmt::format(" in the unit '{}'", unit_->state->name));
  };
  for (const ParameterPtr& other : *parameters_)
    if (other->name == name)
      refuse("parameter", other->global_shape,
             other->unit == nullptr ? "" : fmt::format(" in the unit '{}'", other->unit->name));
  for (const BufferPtr& other : *buffers_)
    if (other->name == name) refuse("buffer", other->global_shape, "");
}

ParameterPtr Build::parameter(std::string_view child, const Shape& global, const Placements& placements,
                              const Init& init, const Options& options) const {
  auto parameter = std::make_shared<Parameter>();
  parameter->name = (*this / child).name();
  require_new_name(parameter->name, global);
  for (const std::int64_t extent : global)
    if (extent < 1)
      fail(ExitCode::usage, "build",
           "'{}' would have the shape {}, without elements; expected extents of at least 1; give the layer all of its "
           "sizes",
           parameter->name, global);
  for (const Axis axis : {Axis::edp, Axis::ep, Axis::tp})
    require(placements.on(axis).kind != Placement::Kind::partial, "build",
            "'{}' is to be P on {}; expected R, I or S(dim): ranks hold a parameter, not terms of it", parameter->name,
            trireme::name(axis));
  require(std::isfinite(init.value), "build", "'{}' would begin with {}; expected a finite initial value or init_std",
          parameter->name, init.value);
  require(options.logical_rows <= (global.dims() > 0 ? global[0] : 0), "build",
          "'{}' has {} logical rows in a shape {}; expected at most its first extent", parameter->name,
          options.logical_rows, global);
  require(!options.hidden_matrix || global.dims() >= 2, "build", "'{}' is said to be a matrix, and would be {}",
          parameter->name, global);
  require(global.dims() > 0, "build", "'{}' would have no dims; expected at least one; give it the shape [1]",
          parameter->name);
  parameter->global_shape = global;
  parameter->placements = placements;
  parameter->seed = seed_;
  parameter->made_for = mesh_->shape();
  parameter->needs_sum =
      !gradient_axes(placements, *mesh_).empty() || (options.copy_of_earlier_stage && mesh_->size(Axis::pp) > 1);
  parameter->rectangle = local_rectangle(global, placements, *mesh_, parameter->name);
  parameter->logical_rows = options.logical_rows >= 0 ? options.logical_rows : global[0];
  parameter->decay = options.decay;
  parameter->hidden_matrix = options.hidden_matrix;
  parameter->copy_of_earlier_stage = options.copy_of_earlier_stage;
  {
    const MemoryScope scope(MemoryCategory::parameters);
    parameter->local = Tensor::empty(local_shape(global, placements, *mesh_, parameter->name), dtype_, device_);
  }
  const Init first = to_be_loaded_ && !is_adapter(parameter->name) ? Init::zeros() : init;
  if (drawn_on_use_) {
    parameter->local.fill_on_use([weak = std::weak_ptr(parameter), first] {
      const ParameterPtr p = weak.lock();
      require(p != nullptr, "build",
              "the values of a parameter are needed for the first time after its model has gone");
      initialise(*p, first, p->seed);
    });
  } else {
    initialise(*parameter, first, seed_);
  }
  require_grad(parameter->local);
  parameter->leaf().set_parameter();
  parameters_->push_back(parameter);
  parameter->made_with = parameters_;
  if (unit_ != nullptr) unit_->add(parameter);
  return parameter;
}

BufferPtr Build::buffer(std::string_view child, const Shape& global, const Placements& placements, double value,
                        DType dtype) const {
  auto buffer = std::make_shared<Buffer>();
  buffer->name = (*this / child).name();
  require_new_name(buffer->name, global);
  buffer->global_shape = global;
  buffer->placements = placements;
  buffer->rectangle = local_rectangle(global, placements, *mesh_, buffer->name);
  const MemoryScope scope(MemoryCategory::parameters);
  buffer->value = Tensor::full(local_shape(global, placements, *mesh_, buffer->name), value, dtype, device_);
  buffers_->push_back(buffer);
  return buffer;
}

}  // namespace trireme::nn
