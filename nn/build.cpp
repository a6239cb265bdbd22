#include "nn/build.h"

namespace trireme::nn {

Build::Build(std::shared_ptr<const DeviceMesh> mesh, DType dtype, std::uint64_t seed, const Parallelism& parallelism,
             Device device)
    : mesh_(std::move(mesh)),
      dtype_(dtype),
      device_(device),
      seed_(seed),
      parallelism_(parallelism),
      parameters_(std::make_shared<ParameterList>()),
      buffers_(std::make_shared<BufferList>()),
      routing_(std::make_shared<RoutingLog>()),
      units_(std::make_shared<Units>()),
      run_state_(std::make_shared<RunState>()) {}

Build Build::operator/(std::string_view child) const {
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
  parameter->global_shape = global;
  parameter->placements = placements;
  parameter->rectangle = local_rectangle(global, placements, *mesh_, parameter->name);
  parameter->logical_rows = options.logical_rows >= 0 ? options.logical_rows : global[0];
  parameter->decay = options.decay;
  parameter->copy_of_earlier_stage = options.copy_of_earlier_stage;
  {
    const MemoryScope scope(MemoryCategory::parameters);
    parameter->local = Tensor::empty(local_shape(global, placements, *mesh_, parameter->name), dtype_, device_);
  }
  initialise(*parameter, init, seed_);
  require_grad(parameter->local);
  parameter->leaf().set_parameter();
  parameters_->push_back(parameter);
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
