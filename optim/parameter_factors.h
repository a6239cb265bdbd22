// ParameterFactors: numbers for parameters by name, such as factors of the learning rate for parts of a model.
//
//   const ParameterFactors factors("--lr-factor", "wte.weight=0.2,blocks.*.attn.*=0.5");
//   factors.of("blocks.3.attn.qkv.weight");  // 0.5
//   factors.of("norm.weight");               // 1
//
// Read next: optim/optimizer.h (set_factors).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/mesh/mesh.h"
#include "parallel/parameters/parameter.h"

namespace trireme::optim {

class ParameterFactors {
 public:
  /// `text`: PATTERN=F, several separated by commas; F at least 0. In a pattern * stands for any characters, and ? for
  /// one. Empty: every factor is 1. Throws ExitCode::usage, naming `flag`, for another form.
  ParameterFactors(std::string_view flag, std::string_view text);

  bool empty() const { return entries_.empty(); }
  /// The factor of the last pattern that matches the name, or 1.
  double of(const std::string& name) const;
  /// Throws ExitCode::usage if a pattern matches none of these parameters on any rank: it may be misspelt. `what`: what
  /// they are, for the message. Collective over the mesh.
  void require_matches(const ParameterList& parameters, std::string_view what, const DeviceMesh& mesh) const;
  /// The same for the parameters of this rank alone.
  void require_matches(const ParameterList& parameters, std::string_view what) const;

 private:
  struct Entry {
    std::string pattern;
    double factor;
    bool matches(const std::string& name) const;
  };
  [[noreturn]] void refuse(const Entry& entry, const ParameterList& parameters, std::string_view what) const;

  std::string flag_;
  std::vector<Entry> entries_;
};

}  // namespace trireme::optim
