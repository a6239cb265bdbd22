// What tests of plans share: small models, on a machine whose kernels take time by their FLOPs.
#pragma once

#include <string>
#include <vector>

#include "check/parity/parity.h"
#include "models/gpt.h"
#include "ops/plan/predict.h"
#include "train/gpt/parity_options.h"

namespace trireme::plan {

class ByFlops final : public MachineModel {
 public:
  explicit ByFlops(double seconds_per_byte = 1e-10) : seconds_per_byte_(seconds_per_byte) {}
  double kernel(const ProfileEvent& call) const override { return 1e-6 + 1e-12 * call.cost.flops; }
  double host(double) const override { return 0; }
  TransferTime collective(const Trace::Transfer& transfer, const Trace::Group&) const override {
    return time(transfer);
  }
  TransferTime message(const Trace::Transfer& transfer, int) const override { return time(transfer); }
  int node_of(int) const override { return 0; }

 private:
  TransferTime time(const Trace::Transfer& transfer) const {
    return {.link = 1e-6 + seconds_per_byte_ * static_cast<double>(transfer.bytes)};
  }

  double seconds_per_byte_;
};

inline GptOptions options_of(const std::vector<std::string>& arguments) {
  GptOptions options = read_parity_options(arguments);
  options.model.config.experts.force_balance = true;
  return options;
}

inline DryProgram program_of(const GptOptions& options) {
  return dry_program(gpt_parity(options.model.config), options);
}

}  // namespace trireme::plan
