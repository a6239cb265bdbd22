#include "train/options/optimizer_kinds.h"

#include <fmt/format.h>

#include <algorithm>

#include "optim/adafactor.h"
#include "optim/muon.h"

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

optim::AdamWConfig adamw_config(const OptimizerOptions& o) {
  return {.beta1 = o.beta1, .beta2 = o.second_beta(), .eps = o.eps, .weight_decay = o.weight_decay, .memory = o.memory};
}

}  // namespace

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = {
      {.name = "adamw",
       .row = [](const OptimizerOptions& o, double) { return adamw_row(o); },
       .check = check_nothing,
       .make = [](const TrainOptions& options, const ShardList& shards,
                  const DeviceMesh&) { return optim::make_adamw(shards, adamw_config(options.optimizer)); }},
      {.name = "sgd",
       .row = [](const OptimizerOptions& o,
                 double) { return fmt::format("sgd, momentum {}{}", o.decay_of_momentum(), nesterov(o)); },
       .check = check_sgd,
       .make =
           [](const TrainOptions& options, const ShardList& shards, const DeviceMesh&) {
             const OptimizerOptions& o = options.optimizer;
             return optim::make_sgd(shards, {.momentum = o.decay_of_momentum(),
                                             .nesterov = o.looks_ahead(),
                                             .weight_decay = o.weight_decay,
                                             .memory = o.memory});
           }},
      {.name = "lion",
       .row = [](const OptimizerOptions& o,
                 double) { return fmt::format("lion, beta {} and {}", o.beta1, o.second_beta()); },
       .check = check_nothing,
       .make =
           [](const TrainOptions& options, const ShardList& shards, const DeviceMesh&) {
             const OptimizerOptions& o = options.optimizer;
             return optim::make_lion(
                 shards,
                 {.beta1 = o.beta1, .beta2 = o.second_beta(), .weight_decay = o.weight_decay, .memory = o.memory});
           }},
      {.name = "muon",
       .about = "matrices between hidden layers, and adamw the others",
       .row =
           [](const OptimizerOptions& o, double lr) {
             return fmt::format("muon for matrices, learning rate {:.3g}, scale {}, momentum {}{}; for others {}",
                                o.matrix_lr(lr), optim::name(o.muon_scale), o.decay_of_momentum(), nesterov(o),
                                adamw_row(o));
           },
       .check = check_muon,
       .make =
           [](const TrainOptions& options, const ShardList& shards, const DeviceMesh& mesh) {
             const OptimizerOptions& o = options.optimizer;
             return optim::make_muon(shards, mesh,
                                     {.momentum = o.decay_of_momentum(),
                                      .nesterov = o.looks_ahead(),
                                      .scale = o.muon_scale,
                                      .lr_ratio = o.matrix_lr(options.schedule.lr) / options.schedule.lr,
                                      .adamw = adamw_config(o)});
           }},
      {.name = "adafactor",
       .about = "keeps a row and a column of each matrix",
       .row =
           [](const OptimizerOptions& o, double) {
             return fmt::format("adafactor, beta2 1 - t^-{}, updates of at most {}{}", o.adafactor_decay,
                                o.adafactor_clip, o.adafactor_relative ? ", relative to the weights" : "");
           },
       .check = check_adafactor,
       .make =
           [](const TrainOptions& options, const ShardList& shards, const DeviceMesh& mesh) {
             const OptimizerOptions& o = options.optimizer;
             return optim::make_adafactor(shards, mesh,
                                          {.decay = -o.adafactor_decay,
                                           .clip = o.adafactor_clip,
                                           .weight_decay = o.weight_decay,
                                           .scale_by_weight = o.adafactor_relative,
                                           .memory = o.memory});
           }}};
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

std::string optimizer_help() {
  std::string help = "what updates the weights";
  for (const OptimizerKind& kind : optimizer_kinds())
    if (!kind.about.empty()) help += fmt::format("; {}: {}", kind.name, kind.about);
  return help;
}

}  // namespace trireme
