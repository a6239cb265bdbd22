// Replaces the functions of kernels, devices, optimizers and saved runs that the options call, for builds of the parsers
// alone. Nothing here computes: the names have no implementation, there is no GPU, and no run to go on with.
#include "core/device.h"
#include "core/kernels.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "optim/adafactor.h"
#include "optim/muon.h"
#include "optim/optimizer.h"
#include "train/program/version.h"
#include "train/runs/saved_run.h"

namespace trireme {

std::string version_text(std::string_view program) { return std::string(program); }
std::string_view name(Device device) { return device == Device::cuda ? "cuda" : "cpu"; }
std::string_view name(MemoryCategory /*category*/) { return "activations"; }
std::vector<std::string_view> gemm_names() { return {"packed"}; }
std::optional<std::filesystem::path> resumed_checkpoint(const std::string& /*resume*/,
                                                        const std::filesystem::path& /*out*/) {
  return std::nullopt;
}

namespace optim {

std::unique_ptr<Optimizer> make_adamw(const ShardList& /*shards*/, const AdamWConfig& /*config*/) { return nullptr; }
std::unique_ptr<Optimizer> make_sgd(const ShardList& /*shards*/, const SgdConfig& /*config*/) { return nullptr; }
std::unique_ptr<Optimizer> make_lion(const ShardList& /*shards*/, const LionConfig& /*config*/) { return nullptr; }
std::unique_ptr<Optimizer> make_muon(const ShardList& /*shards*/, const DeviceMesh& /*mesh*/,
                                     const MuonConfig& /*config*/) {
  return nullptr;
}
std::unique_ptr<Optimizer> make_adafactor(const ShardList& /*shards*/, const DeviceMesh& /*mesh*/,
                                          const AdafactorConfig& /*config*/) {
  return nullptr;
}

}  // namespace optim

namespace cuda {

std::vector<std::string_view> gemm_names() { return {}; }
std::vector<std::string_view> attention_names() { return {}; }
Absent absent_gemms() { return {}; }
Absent absent_attentions() { return {}; }
void require_device() { fail(ExitCode::usage, "device", "there is no GPU; expected one; use --device cpu"); }

}  // namespace cuda
}  // namespace trireme
