#include "models/language_model.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace trireme {

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets) {
  if (mesh().world().size() > 1)
    fail(ExitCode::usage, "model",
         "the mean over a batch on a mesh of {} ranks; expected one rank; use Trainer, or loss_of() with a scale of 1 "
         "/ the targets of the global batch",
         mesh().world().size());
  require(ids.defined() && targets.defined() && ids.dims() == 2 && ids.size(0) > 0 && targets.shape() == ids.shape() &&
              targets.dtype() == DType::i32,
          "model", "ids {} and targets {}; expected both [B, T] in i32, with at least one sample", ids.shape(),
          targets.shape());
  const Tensor here = contiguous(targets.to(Device::cpu));
  const auto all = here.span<const std::int32_t>();
  const auto valid = std::count_if(all.begin(), all.end(), [](std::int32_t target) { return target >= 0; });
  if (valid == 0)
    fail(ExitCode::data, "model", "all targets {} are negative; expected at least one that is not ignored",
         targets.shape());
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(ids.size(0)));
  std::iota(numbers.begin(), numbers.end(), next_sample_);
  if (run_state().training) next_sample_ += ids.size(0);
  run_state().step_sequences = ids.size(0);
  return loss_of(token_batch(ids, targets, std::move(numbers)), 1.0 / static_cast<double>(valid));
}

}  // namespace trireme
