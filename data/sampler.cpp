// Sample number to window, and windows to tensors.
#include "data/sampler.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace trireme {

Sampler::Sampler(TokenRange tokens, std::int64_t context, std::uint64_t seed)
    : tokens_(std::move(tokens)), context_(context), starts_(tokens_.count() - context), seed_(seed) {
  require(context >= 1, "sampler", "context is {}; expected at least 1", context);
  if (starts_ < 1)
    fail(ExitCode::data, "sampler",
         "the training part has {} tokens; expected at least {} for a context of {} "
         "(--context)",
         tokens_.count(), context + 1, context);
}

std::int64_t Sampler::start(std::int64_t sample) const {
  require(sample >= 0, "sampler", "sample {} does not exist", sample);
  const auto words = philox(seed_, stream_of("sampler"), static_cast<std::uint64_t>(sample));
  const std::uint64_t random = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
  // Multiply and keep the high half: uniform to within starts / 2^64.
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>((static_cast<Wide>(random) * static_cast<Wide>(starts_)) >> 64);
}

Batch Sampler::make_batch(std::int64_t first, std::int64_t count) const {
  require(count >= 1, "sampler", "a batch of {} samples; expected at least 1", count);
  const Tensor inputs = Tensor::empty({count, context_}, DType::i32);   // [B, T]
  const Tensor targets = Tensor::empty({count, context_}, DType::i32);  // [B, T]
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> window(static_cast<std::size_t>(context_) + 1);
  for (std::int64_t row = 0; row < count; ++row) {
    tokens_.read(start(first + row), window);
    std::copy_n(window.begin(), context_, inputs.data<std::int32_t>() + row * context_);
    std::copy_n(window.begin() + 1, context_, targets.data<std::int32_t>() + row * context_);
    ids.push_back(first + row);
  }
  return token_batch(inputs, targets, std::move(ids));
}

void BatchPlan::check() const {
  if (micro_batch < 1 || global_batch < 1 || dp_size < 1 || dp_rank < 0 || dp_rank >= dp_size)
    fail(ExitCode::usage, "batch", "global-batch {}, micro-batch {}, dp rank {} of {}; expected positive numbers",
         global_batch, micro_batch, dp_rank, dp_size);
  if (global_batch % (micro_batch * dp_size) != 0)
    fail(ExitCode::usage, "batch",
         "global-batch {} is not a multiple of micro-batch {} x dp {} = {}; change BatchPlan::global_batch "
         "(--global-batch) or "
         "micro_batch (--micro-batch)",
         global_batch, micro_batch, dp_size, micro_batch * dp_size);
}

}  // namespace trireme
