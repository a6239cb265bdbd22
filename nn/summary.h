// A module as text: its tree, with the type of each module, and the shape and number of elements of each parameter.
//
//   fmt::print("{}", block);        // or std::cout << block, or nn::summary(block)
//
//   block         Block              304
//     norm        LayerNorm           16
//       weight             [8]         8
//       bias               [8]         8
//     fc          Linear             288
//       weight             [32, 8]   256  S(0) on tp: [16, 8] here
//       bias               [32]       32  S(0) on tp: [16] here
//   304 parameters in f32, all of them trained; 720 bytes on this rank
//
// Shapes and numbers are those of whole tensors, without padding, on every mesh. With pp > 1 a rank has only the
// modules of its stages. Read next: nn/module_base.h.
#pragma once

#include <iosfwd>
#include <string>
#include <type_traits>

#include "nn/module_base.h"

namespace trireme::nn {

/// Several lines, each with a newline.
std::string summary(const ModuleBase& module);
/// Of everything made so far with Builds that derive from the same one, and whose names are below this one's.
std::string summary(const Build& build);

/// The elements of the whole parameters, without padding. A tied copy of an earlier pipeline stage's parameter counts
/// there.
std::int64_t count_elements(const ParameterList& parameters);

/// Prints summary(module).
std::ostream& operator<<(std::ostream& out, const ModuleBase& module);
fmt::format_context::iterator write_summary(const ModuleBase& module, fmt::format_context& context);  ///< for fmt

}  // namespace trireme::nn

template <class M>
struct fmt::formatter<M, std::enable_if_t<std::is_base_of_v<trireme::nn::ModuleBase, M>, char>> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  fmt::format_context::iterator format(const M& module, fmt::format_context& context) const {
    return trireme::nn::write_summary(module, context);
  }
};
