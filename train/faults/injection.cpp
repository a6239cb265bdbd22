#include "train/faults/injection.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <thread>

#include "train/faults/disturb.h"
#include "train/options/options.h"
#include "train/program/rank.h"
#include "train/program/screen.h"

namespace trireme::fault {
namespace {

/// True for kinds that happen at every matching point of a pass, false for those that happen only at the first.
bool lasts(Kind kind) { return kind == Kind::slow || kind == Kind::spike; }

/// The faults of one rank.
struct Plan {
  struct Planned {
    Fault fault;
    std::int64_t passes = 0, pass = 0;  // passes in which it happened: their number, and the last one
  };
  std::vector<Planned> faults;
  const Rank* rank = nullptr;
  std::int64_t pass = 1;  // counts passes through steps; a repeated step is another pass
  bool processes = false;

  /// The fault of one of `kinds` that is due at this point, if any.
  const Fault* due(Point point, std::initializer_list<Kind> kinds) {
    for (Planned& planned : faults) {
      const Fault& f = planned.fault;
      if (f.point != point || rank->step < f.first_step || rank->step > f.last_step) continue;
      if (std::find(kinds.begin(), kinds.end(), f.kind) == kinds.end()) continue;
      if (planned.pass == pass) {
        if (lasts(f.kind)) return &f;
        continue;
      }
      if (planned.passes == f.times) continue;
      planned.pass = pass;
      if (++planned.passes == 1 || !lasts(f.kind)) announce(f);
      return &f;
    }
    return nullptr;
  }

  void announce(const Fault& f) const {
    Screen::of_process().warning(
        fmt::format("injected fault: {} at {} of step {} on {}", name(f.kind), name(f.point), rank->step, rank->where));
  }
};

/// The plan of the calling thread's rank.
std::unique_ptr<Plan>& current() {
  thread_local std::unique_ptr<Plan> plan;
  return plan;
}

[[noreturn]] void block() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void take_out_of_step(const Rank& rank, const DeviceMesh* mesh) {
  ProcessGroup* group = rank.world.get();
  if (mesh != nullptr) {
    for (const Axis axis : {Axis::tp, Axis::pp, Axis::data})
      if (mesh->group(axis).size() > 1) group = &mesh->group(axis);
  }
  group->all_reduce(Tensor::zeros({3})).wait();
}

void inject(const Fault& f, const Plan& plan, const DeviceMesh* mesh) {
  switch (f.kind) {
    case Kind::kill:
      ::kill(::getpid(), SIGKILL);
      return;
    case Kind::stop:
      if (!plan.processes) block();
      ::kill(::getpid(), SIGSTOP);
      return;
    case Kind::slow:
      return std::this_thread::sleep_for(std::chrono::milliseconds(f.ms));
    case Kind::throws:
      fail(ExitCode::internal, "fault",
           "an injected fault, which {} asks for; unset the variable to run without faults", fault_variable);
    case Kind::oom:
      try {
        static_cast<void>(Tensor::empty({std::int64_t{1} << 47}));
      } catch (const Error& error) {  // no machine has so much: as if the machine had had it, and had run out of it
        throw Error(ExitCode::retryable, error.where(), error.reason());
      }
      return;
    case Kind::desync:
      return take_out_of_step(*plan.rank, mesh);
    default:
      return;
  }
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

Scope::Scope(const TrainOptions& options, const Rank& rank) {
  if (options.run.faults.empty()) return;
  auto plan = std::make_unique<Plan>();
  plan->rank = &rank;
  plan->processes = options.mesh.processes;
  for (Fault& fault : parse(options.run.faults)) {
    const bool here = fault.rank == Fault::all_ranks || fault.rank == rank.world->rank();
    if (here && (!fault.start || *fault.start == restarts())) plan->faults.push_back({std::move(fault)});
  }
  current() = std::move(plan);
}

Scope::~Scope() { current().reset(); }

void point(Point point, const DeviceMesh* mesh) {
  Plan* const plan = current().get();
  if (plan == nullptr) return;
  if (point == Point::step) ++plan->pass;
  if (const Fault* slow = plan->due(point, {Kind::slow})) inject(*slow, *plan, mesh);
  while (const Fault* f = plan->due(point, {Kind::kill, Kind::stop, Kind::throws, Kind::oom, Kind::desync}))
    inject(*f, *plan, mesh);
}

double loss_factor() {
  Plan* const plan = current().get();
  if (plan == nullptr) return 1;
  if (plan->due(Point::forward, {Kind::nan}) != nullptr) return std::numeric_limits<double>::quiet_NaN();
  const Fault* spike = plan->due(Point::forward, {Kind::spike});
  return spike == nullptr ? 1 : spike->factor;
}

void poison(const ParameterList& parameters) {
  Plan* const plan = current().get();
  const Fault* f = plan == nullptr ? nullptr : plan->due(Point::backward, {Kind::nan});
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
  no_such_tensor(*f, *plan->rank, known);
}

void flip(optim::Optimizer& optimizer) {
  Plan* const plan = current().get();
  const Fault* f = plan == nullptr ? nullptr : plan->due(Point::optimizer, {Kind::flip});
  if (f == nullptr) return;
  std::vector<StateTensor> tensors = optimizer.weights();
  const std::vector<StateTensor> state = optimizer.state();
  tensors.insert(tensors.end(), state.begin(), state.end());
  const StateTensor* chosen = choose(tensors, *f);
  if (chosen == nullptr) {
    std::string known;
    for (const StateTensor& tensor : tensors) known += (known.empty() ? "" : ", ") + tensor.full_name();
    no_such_tensor(*f, *plan->rank, known);
  }
  const int bit = std::min(f->bit, static_cast<int>(size_of(chosen->value.dtype())) * 8 - 1);
  change_element(chosen->value, f->element, [bit](std::byte* bytes, const Tensor&) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);  // little-endian, like all supported machines
  });
}

bool noise(optim::Optimizer& optimizer) {
  Plan* const plan = current().get();
  const Fault* f = plan == nullptr ? nullptr : plan->due(Point::step, {Kind::noise});
  if (f == nullptr) return false;
  disturb(optimizer, f->factor, static_cast<std::uint64_t>(f->seed));
  return true;
}

}  // namespace trireme::fault
