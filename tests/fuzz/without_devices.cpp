// Replaces the functions of kernels, devices and saved runs that the options call, for builds of the parsers alone.
// Nothing here computes: the names have no implementation, there is no GPU, and no run to go on with.
#include "core/device.h"
#include "core/kernels.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "train/program/version.h"
#include "train/runs/saved_run.h"

namespace trireme {

std::string version_text(std::string_view program) { return std::string(program); }
std::string_view name(Device device) { return device == Device::cuda ? "cuda" : "cpu"; }
std::vector<std::string_view> gemm_names() { return {"packed"}; }
std::optional<std::filesystem::path> resumed_checkpoint(const std::string& /*resume*/,
                                                        const std::filesystem::path& /*out*/) {
  return std::nullopt;
}

namespace cuda {

std::vector<std::string_view> gemm_names() { return {}; }
std::vector<std::string_view> attention_names() { return {}; }
Absent absent_gemms() { return {}; }
Absent absent_attentions() { return {}; }
void require_device() { fail(ExitCode::usage, "device", "there is no GPU; expected one; use --device cpu"); }

}  // namespace cuda
}  // namespace trireme
