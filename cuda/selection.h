// Implementations of products and attention on Device::cuda, by name: what --gemm and --attention choose there.
//
// "auto", the first name, and "trireme" take, for each call, the first of our own kernels that the device and the
// shapes allow. NVIDIA's libraries run only if chosen by name. Any other name is binding: if it cannot take a call, an
// error states the constraint. Products and attention in f32 have one implementation each, under "trireme" only.
// Read next: cuda/implementations.h.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::cuda {

/// Empty in a build without CUDA. select_... sets the implementation for the whole process: call it before ranks start.
/// It throws ExitCode::usage for an unknown name and lists the known ones.
std::vector<std::string_view> gemm_names();
void select_gemm(std::string_view name);
std::string_view selected_gemm();

std::vector<std::string_view> attention_names();
void select_attention(std::string_view name);
std::string_view selected_attention();

/// Names that other builds have but this one lacks, each with what is missing here and how to get it; the text is empty
/// if CUDA as a whole is missing.
using Absent = std::vector<std::pair<std::string_view, std::string>>;
Absent absent_gemms();
Absent absent_attentions();

}  // namespace trireme::cuda
