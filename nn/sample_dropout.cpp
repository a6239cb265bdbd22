#include "nn/sample_dropout.h"

#include "autograd/ops.h"
#include "core/random.h"
#include "nn/conv.h"
#include "nn/positions.h"

namespace trireme::nn {

Tensor dropout_in_samples(const Tensor& x, double p, const Build& build, const std::string& name,
                          const SamplePart& part) {
  require(x.dims() > 0, "dropout", "{} expects [B, ..], got {}", name, x.shape());
  const RunState& run = *build.run_state();
  require(
      run.first_sample.has_value(), "dropout",
      "{}: the masks are a function of the numbers of the samples, which nobody has set, so each step would drop the "
      "same elements; expected the number of the first sample of this batch, counted since step 0; set it before "
      "each forward: build.run_state()->first_sample = step * batch; for evaluation, call eval() of the model",
      name);
  const std::int64_t first_sample = *run.first_sample;
  Rectangle where{.global = x.shape().with(0, first_sample + x.size(0)), .start = x.shape().with(0, first_sample)};
  for (int dim = 1; dim < x.dims(); ++dim) where.start = where.start.with(dim, 0);
  if (x.dims() > 1) {
    where.global = where.global.with(-1, part.features);
    where.start = where.start.with(-1, part.first_feature);
  }
  const std::uint64_t stream = stream_of(name);
  if (x.dims() != 3) {
    require_whole_samples(build, "dropout");
    return dropout(x, p, build.seed(), stream, where);
  }
  const std::int64_t length = sequence_length(build.mesh(), part.tokens, x.size(1));
  where.global = where.global.with(1, length);
  const PositionRuns runs = residual_positions(build.mesh(), part.tokens, length);
  std::vector<Tensor> parts;
  for (const PositionRun& positions : runs) {  // one run, except under context parallelism
    where.start[1] = positions.global;
    const Tensor some = runs.size() == 1 ? x : slice(x, 1, positions.local, positions.length);
    parts.push_back(dropout(some, p, build.seed(), stream, where));
  }
  return concat(parts, 1);
}

}  // namespace trireme::nn
