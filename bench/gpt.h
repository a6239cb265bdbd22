// What benchmarks of a GPT share: its flags and its batches. Read next: train/options/flags.h, train/gpt/gpt_options.h.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "core/random.h"
#include "data/batch.h"
#include "train/gpt/gpt_options.h"

namespace trireme::bench {

/// The model's configuration. --vocab must give a size here, because tokens are random numbers.
inline GptConfig model_on_random_tokens(const ModelOptions& o) {
  if (!o.vocab)
    fail(ExitCode::usage, "vocab",
         "--vocab auto is the tokenizer's number of tokens, and there is no tokenizer here; expected a number; give "
         "--vocab N, or drop --vocab");
  return o.with_vocab(*o.vocab);
}

/// A micro-batch of random tokens, whose samples have the numbers from `first` on.
inline Batch random_batch(const GptOptions& o, std::int64_t first) {
  const GptConfig& c = o.model.config;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(o.batch_sizes().micro_batch));
  std::iota(samples.begin(), samples.end(), first);
  const Tensor ids = Tensor::empty({o.batch_sizes().micro_batch, c.context}, DType::i32);  // [B, T]
  for (std::int64_t i = 0; i < ids.count(); ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(
        random_word(1, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(i)) % c.vocab);
  return token_batch(ids, ids, std::move(samples));
}

}  // namespace trireme::bench
