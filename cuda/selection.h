// Implementations of products and attention on Device::cuda, by name: what --gemm and --attention choose there.
//
// "auto" comes first and takes, call by call, the fastest one that the device runs and the shapes allow; "trireme" does
// so among the kernels written here, without NVIDIA's libraries. Any other name is binding: a call that it cannot take
// is refused with the constraint. Products and attention in f32 have one implementation each, which is "trireme" alone.
// Read next: cuda/implementations.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::cuda {

/// Empty in a build without CUDA. select_... sets the one in use for the whole process: call it before ranks start. It
/// throws ExitCode::usage for an unknown name, listing the known ones.
std::vector<std::string_view> gemm_names();
void select_gemm(std::string_view name);
std::string_view selected_gemm();

std::vector<std::string_view> attention_names();
void select_attention(std::string_view name);
std::string_view selected_attention();

/// What other builds have and this one has not, each with what is missing here and how to get it; with no text where
/// that is CUDA as a whole.
using Absent = std::vector<std::pair<std::string_view, std::string>>;
Absent absent_gemms();
Absent absent_attentions();

}  // namespace trireme::cuda
