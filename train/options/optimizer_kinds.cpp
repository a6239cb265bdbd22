#include "train/options/optimizer_kinds.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

std::string nesterov(const OptimizerOptions& o) { return o.looks_ahead() ? " (Nesterov)" : ""; }

std::string adamw_row(const OptimizerOptions& o) {
  return fmt::format("adamw, beta {} and {}, eps {}", o.beta1, o.second_beta(), o.eps);
}

void require_momentum_ahead(const OptimizerOptions& o) {
  if (o.looks_ahead() && o.momentum == 0.0)
    fail(ExitCode::usage, "optimizer",
         "--nesterov on looks ahead along the momentum, got --momentum 0; expected above 0; change one of the two");
}

bool offloads_from_gpu(const OptimizerOptions& o, Device device) {
  return o.memory == MemoryCategory::offloaded && device != Device::cpu;
}

void check_sgd(const OptimizerOptions& o, Device) {
  require_momentum_ahead(o);
  if (o.moments != DType::f32 && o.decay_of_momentum() == 0)
    fail(
        ExitCode::usage, "optimizer",
        "--moments bf16 has no effect, as SGD without momentum has no moments; expected --momentum above 0; change one "
        "of the two");
}

void check_muon(const OptimizerOptions& o, Device device) {
  require_momentum_ahead(o);
  if (offloads_from_gpu(o, device))
    fail(ExitCode::usage, "optimizer",
         "--offload optimizer keeps Muon's momentum in host memory, and its matrix products run on the GPU; expected "
         "--offload none; use --zero 1 to shard the state, or --optimizer adamw");
}

void check_adafactor(const OptimizerOptions& o, Device device) {
  if (o.moments != DType::f32)
    fail(ExitCode::usage, "optimizer",
         "--moments bf16 halves moments, and --optimizer adafactor keeps only a row and a column of each matrix; "
         "expected --moments f32; drop --moments");
  if (offloads_from_gpu(o, device))
    fail(
        ExitCode::usage, "optimizer",
        "--offload optimizer keeps Adafactor's state in host memory, and its updates are computed on the GPU; expected "
        "--offload none: the state is small");
}

void check_nothing(const OptimizerOptions&, Device) {}

}  // namespace

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      {.name = "adamw", .row = [](const OptimizerOptions& o, double) { return adamw_row(o); }, .check = check_nothing},
      {.name = "sgd",
       .row = [](const OptimizerOptions& o,
                 double) { return fmt::format("sgd, momentum {}{}", o.decay_of_momentum(), nesterov(o)); },
       .check = check_sgd},
      {.name = "lion",
       .row = [](const OptimizerOptions& o,
                 double) { return fmt::format("lion, beta {} and {}", o.beta1, o.second_beta()); },
       .check = check_nothing},
      {.name = "muon",
       .row =
           [](const OptimizerOptions& o, double lr) {
             return fmt::format("muon for matrices, learning rate {:.3g}, scale {}, momentum {}{}; for others {}",
                                o.matrix_lr(lr), optim::name(o.muon_scale), o.decay_of_momentum(), nesterov(o),
                                adamw_row(o));
           },
       .check = check_muon},
      {.name = "adafactor",
       .row =
           [](const OptimizerOptions& o, double) {
             return fmt::format("adafactor, beta2 1 - t^-{}, updates of at most {}{}", o.adafactor_decay,
                                o.adafactor_clip, o.adafactor_relative ? ", relative to the weights" : "");
           },
       .check = check_adafactor}};
  return kinds;
}

const OptimizerKind& kind_of(const OptimizerOptions& options) {
  const auto& kinds = optimizer_kinds();
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.name == options.optimizer; });
  if (found == kinds.end())
    fail(ExitCode::usage, "--optimizer", "'{}'; expected one of {}; change it", options.optimizer,
         fmt::join(optimizer_names(), ", "));
  return *found;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : optimizer_kinds()) names.push_back(kind.name);
  return names;
}

}  // namespace trireme
