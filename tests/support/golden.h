// Reference tensors that PyTorch computed: the files tests/golden/NAME.safetensors. The scripts there make them.
// Read next: tests/golden/README.md.
#pragma once

#include <string>

#include "data/safetensors.h"
#include "tests/support/elements.h"

namespace trireme::testing {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name) : file_("tests/golden/" + name + ".safetensors") {}
  bool has(const std::string& name) const { return file_.contains(name); }
  /// A copy; floating tensors are converted to `dtype`.
  Tensor read(const std::string& name, DType dtype = DType::f64) const {
    const Tensor stored = file_.read(name);
    return clone(is_floating(stored.dtype()) ? cast(stored, dtype) : stored);
  }
  double number(const std::string& name) const { return file_.read(name).item(); }

 private:
  SafetensorsFile file_;
};

/// What is allowed between a result in this dtype and PyTorch's in f64, relative to its norm.
inline double golden_tolerance(DType dtype) { return dtype == DType::f64 ? 1e-13 : 2e-6; }

/// Checks a result against a tensor of the file.
inline void check_golden(const GoldenFile& file, const std::string& name, const Tensor& got) {
  CHECK_MESSAGE(relative_difference(cast(got.detach(), DType::f64), file.read(name)) < golden_tolerance(got.dtype()),
                name, " in ", trireme::name(got.dtype()));
}

}  // namespace trireme::testing
