#include "check/faults/injection.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <limits>
#include <thread>

#include "check/faults/disturb.h"
#include "train/program/rank.h"
#include "train/program/screen.h"

namespace trireme::fault {
namespace {

/// True for kinds that happen at every matching point of a pass, false for those that happen only at the first.
bool lasts(FaultKind kind) { return kind == FaultKind::slow || kind == FaultKind::spike; }

[[noreturn]] void block() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

/// Calls an all-reduce that no other rank calls: on the data group if it has several ranks, else on that of pp or tp,
/// or on the world.
void take_out_of_step(const Rank& rank, const DeviceMesh& mesh) {
  ProcessGroup* group = rank.world.get();
  for (const Axis axis : {Axis::tp, Axis::pp, Axis::data})
    if (mesh.size(axis) > 1) group = &mesh.group(axis);
  group->all_reduce(Tensor::zeros({3})).wait();
}

/// Calls f with the bytes of one element, on any device.
template <class F>
void change_element(const Tensor& x, std::int64_t index, const F& f) {
  require(index < x.count(), "fault", "element {} of a tensor of {} elements; expected a smaller index; change {}",
          index, x.count(), fault_variable);
  std::int64_t offset = 0;
  for (int dim = x.dims() - 1; dim >= 0; --dim) {
    offset += index % x.size(dim) * x.strides()[dim];
    index /= x.size(dim);
  }
  Tensor element = x.detach().as_strided({1}, {1}, offset);
  const Tensor here = element.to(Device::cpu);
  f(static_cast<std::byte*>(here.raw()), here);
  if (x.device() != Device::cpu) copy(here, element);
}

/// Refuses a fault for which this rank has no tensor. `known` names the tensors that the rank has.
[[noreturn]] void no_such_tensor(const Fault& f, const Rank& rank, const std::string& known) {
  if (known.empty())
    fail(ExitCode::usage, fault_variable,
         "{} trains nothing, because all of its parameters are frozen; name another rank, or change --freeze",
         rank.where);
  const std::string wanted = f.tensor.empty() ? "tensor" : fmt::format("tensor '{}'", f.tensor);
  fail(ExitCode::usage, fault_variable, "{} has no {} with an element {}; it has {}; change {}", rank.where, wanted,
       f.element, known, fault_variable);
}

/// The tensor to flip a bit of: by name, or else the first matrix. If that has a master, the master, because the weight
/// is computed from it.
const StateTensor* choose(const std::vector<StateTensor>& tensors, const Fault& f) {
  const StateTensor* chosen = nullptr;
  for (const StateTensor& tensor : tensors) {
    if (tensor.value.count() <= f.element) continue;
    if (!f.tensor.empty() && tensor.full_name() == f.tensor) return &tensor;
    if (!f.tensor.empty() || !tensor.parameter->decay) continue;
    if (tensor.name == "master") return &tensor;
    if (tensor.name.empty() && chosen == nullptr) chosen = &tensor;
  }
  return chosen;
}

}  // namespace

Injector::Injector(std::string_view faults, bool processes, const Rank& rank, const DeviceMesh& mesh)
    : rank_(rank), mesh_(mesh), processes_(processes) {
  for (Fault& fault : parse(faults)) {
    const bool here = fault.rank == Fault::all_ranks || fault.rank == rank.world->rank();
    if (here && (!fault.start || *fault.start == restarts())) faults_.push_back({std::move(fault)});
  }
}

/// The fault of one of `kinds` that is due at this point, if any.
const Fault* Injector::due(Point point, std::initializer_list<FaultKind> kinds) {
  for (Planned& planned : faults_) {
    const Fault& f = planned.fault;
    if (f.point != point || rank_.step < f.first_step || rank_.step > f.last_step) continue;
    if (std::find(kinds.begin(), kinds.end(), f.kind) == kinds.end()) continue;
    if (planned.pass == pass_) {
      if (lasts(f.kind)) return &f;
      continue;
    }
    if (planned.passes == f.times) continue;
    planned.pass = pass_;
    if (++planned.passes == 1 || !lasts(f.kind)) announce(f);
    return &f;
  }
  return nullptr;
}

void Injector::announce(const Fault& f) const {
  Screen::of_process().warning(
      fmt::format("injected fault: {} at {} of step {} on {}", name(f.kind), name(f.point), rank_.step, rank_.where));
}

/// The point for kill, stop, slow, throw, oom and desync.
void Injector::at(Point point) {
  if (const Fault* slow = due(point, {FaultKind::slow})) inject(*slow);
  while (const Fault* f =
             due(point, {FaultKind::kill, FaultKind::stop, FaultKind::throws, FaultKind::oom, FaultKind::desync}))
    inject(*f);
}

void Injector::inject(const Fault& f) {
  switch (f.kind) {
    case FaultKind::kill:
      ::kill(::getpid(), SIGKILL);
      return;
    case FaultKind::stop:
      if (!processes_) block();
      ::kill(::getpid(), SIGSTOP);
      return;
    case FaultKind::slow:
      return std::this_thread::sleep_for(std::chrono::milliseconds(f.ms));
    case FaultKind::throws:
      fail(ExitCode::internal, "fault",
           "an injected fault, which {} asks for; unset the variable to run without faults", fault_variable);
    case FaultKind::oom:
      try {
        static_cast<void>(Tensor::empty({std::int64_t{1} << 47}));
      } catch (const Error& error) {  // no machine has so much: as if the machine had had it, and had run out of it
        throw Error(ExitCode::retryable, error.where(), error.reason());
      }
      return;
    case FaultKind::desync:
      return take_out_of_step(rank_, mesh_);
    default:
      return;
  }
}

bool Injector::before_step(optim::Optimizer& optimizer) {
  ++pass_;
  at(Point::step);
  const Fault* f = due(Point::step, {FaultKind::noise});
  if (f == nullptr) return false;
  disturb(optimizer, f->factor, static_cast<std::uint64_t>(f->seed));
  return true;
}

void Injector::before_backward(const ParameterList& parameters) {
  at(Point::backward);
  poison(parameters);
}

void Injector::before_update(optim::Optimizer& optimizer) {
  at(Point::optimizer);
  flip(optimizer);
}

double Injector::loss_factor() {
  if (due(Point::forward, {FaultKind::nan}) != nullptr) return std::numeric_limits<double>::quiet_NaN();
  const Fault* spike = due(Point::forward, {FaultKind::spike});
  return spike == nullptr ? 1 : spike->factor;
}

/// The point for nan in gradients: before the first backward of a step adds to them.
void Injector::poison(const ParameterList& parameters) {
  const Fault* f = due(Point::backward, {FaultKind::nan});
  if (f == nullptr) return;
  std::string known;
  const ParameterList chosen = trained(parameters);
  const bool matrices = std::any_of(chosen.begin(), chosen.end(), [](const auto& p) { return p->decay; });
  for (const ParameterPtr& parameter : chosen) {
    known += (known.empty() ? "" : ", ") + parameter->name;
    if (f->tensor.empty() ? matrices && !parameter->decay : parameter->name != f->tensor) continue;
    if (parameter->local.count() <= f->element) continue;
    return change_element(parameter->grad(), f->element, [](std::byte*, const Tensor& element) {
      *element.data<float>() = std::numeric_limits<float>::quiet_NaN();
    });
  }
  no_such_tensor(*f, rank_, known);
}

void Injector::flip(optim::Optimizer& optimizer) {
  const Fault* f = due(Point::optimizer, {FaultKind::flip});
  if (f == nullptr) return;
  const std::vector<StateTensor> tensors = optimizer.weights_and_state();
  const StateTensor* chosen = choose(tensors, *f);
  if (chosen == nullptr) {
    std::string known;
    for (const StateTensor& tensor : tensors) known += (known.empty() ? "" : ", ") + tensor.full_name();
    no_such_tensor(*f, rank_, known);
  }
  const int bit = std::min(f->bit, static_cast<int>(size_of(chosen->value.dtype())) * 8 - 1);
  change_element(chosen->value, f->element, [bit](std::byte* bytes, const Tensor&) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);  // little-endian, like all supported machines
  });
}

}  // namespace trireme::fault
