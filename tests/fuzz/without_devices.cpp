// Replaces the functions of kernels and devices that the options call, for builds of the parsers alone. Nothing here
// computes: the names have no implementation, and there is no GPU.
#include "core/device.h"
#include "core/kernels.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "train/program/version.h"

namespace trireme {

std::string version_text(std::string_view program) { return std::string(program); }
std::string_view name(Device device) { return device == Device::cuda ? "cuda" : "cpu"; }
std::vector<std::string_view> gemm_names() { return {"packed"}; }

namespace cuda {

std::vector<std::string_view> gemm_names() { return {}; }
std::vector<std::string_view> attention_names() { return {}; }
Absent absent_gemms() { return {}; }
Absent absent_attentions() { return {}; }
void require_device() { fail(ExitCode::usage, "device", "there is no GPU; expected one; use --device cpu"); }

}  // namespace cuda
}  // namespace trireme
