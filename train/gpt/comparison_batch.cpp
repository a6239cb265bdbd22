#include "train/gpt/comparison_batch.h"

#include <numeric>

#include "core/random.h"

namespace trireme {
namespace {

constexpr std::uint64_t batch_seed = 20240607;

}  // namespace

// With a separator, about every eighth token is one, so documents end in every chunk of a sequence.
GlobalBatch comparison_batch(const TrainOptions& o, const GptConfig& c) {
  const std::int64_t samples = o.batch_sizes().global_batch, context = c.context, vocab = c.vocab;
  const Tensor ids = Tensor::empty({samples, context}, DType::i32);      // [G, T]
  const Tensor targets = Tensor::empty({samples, context}, DType::i32);  // [G, T]
  std::int64_t valid = 0;
  for (std::int64_t i = 0; i < samples * context; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const auto token = [&](std::uint64_t stream) {
      return static_cast<std::int32_t>(random_word(batch_seed, stream, index) % static_cast<std::uint64_t>(vocab));
    };
    const bool masked = samples > 1 && i / context == 0
                            ? true
                            : random_uniform(batch_seed, 3, index) < 0.2 * static_cast<double>(i / context % 3);
    const bool ends = c.document_separator && random_word(batch_seed, 4, index) % 8 == 0;
    ids.data<std::int32_t>()[i] = ends ? static_cast<std::int32_t>(*c.document_separator) : token(1);
    targets.data<std::int32_t>()[i] = masked ? -1 : token(2);
    valid += masked ? 0 : 1;
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(samples));
  std::iota(numbers.begin(), numbers.end(), 0);
  return {token_batch(ids, targets, std::move(numbers)), valid};
}

}  // namespace trireme
