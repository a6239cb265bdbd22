// What the options refer to of kernels, devices and models, for builds of the parsers alone. Nothing here is computed
// with: names are those of no implementation, there is no GPU, and all blocks of a model cost the same.
#include "core/device.h"
#include "core/kernels.h"
#include "cuda/runtime/open.h"
#include "cuda/selection.h"
#include "models/gpt.h"
#include "train/gpu_choices.h"

namespace trireme {

std::string_view name(Device device) { return device == Device::cuda ? "cuda" : "cpu"; }
std::vector<std::string_view> gemm_names() { return {"packed"}; }
pipeline::StageCosts stage_costs(const GptConfig&) { return {}; }
std::vector<std::pair<std::string, std::string>> gpu_choice_notes(const GptOptions&) { return {}; }

namespace cuda {

std::vector<std::string_view> gemm_names() { return {}; }
std::vector<std::string_view> attention_names() { return {}; }
Absent absent_gemms() { return {}; }
Absent absent_attentions() { return {}; }
void require_device() { fail(ExitCode::usage, "device", "there is no GPU; expected one; use --device cpu"); }

}  // namespace cuda
}  // namespace trireme
