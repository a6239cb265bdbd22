#include "data/dataset.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace trireme {
namespace {

/// The number at place `place` in a random order of 0 .. count - 1. A Feistel network permutes the numbers of an even
/// number of bits; it is applied again while its result is not below count (Black and Rogaway 2002, "Ciphers with
/// Arbitrary Finite Domains").
std::uint64_t shuffled(std::uint64_t place, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  constexpr unsigned rounds = 4;
  const unsigned half = std::max(1U, (static_cast<unsigned>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = place >> half, right = place & mask;
    for (unsigned round = 0; round < rounds; ++round) {
      const std::uint64_t word = random_word(seed, stream_of("dataset"), (epoch * rounds + round) << 32 | right);
      left = std::exchange(right, left ^ (word & mask));
    }
    place = left << half | right;
  } while (place >= count);
  return place;
}

}  // namespace

Dataset::Dataset(std::map<std::string, Tensor, std::less<>> tensors, std::uint64_t seed)
    : tensors_(std::move(tensors)), seed_(seed) {
  for (auto& [name, tensor] : tensors_) {
    tensor = contiguous(tensor);  // make_batch copies rows as bytes
    if (rows_ == 0) rows_ = tensor.size(0);
    if (tensor.size(0) != rows_ || rows_ == 0)
      fail(ExitCode::data, "dataset", "'{}' has {} rows, '{}' {}; expected as many in each, at least one", name,
           tensor.size(0), tensors_.begin()->first, rows_);
  }
  if (tensors_.empty()) fail(ExitCode::data, "dataset", "there are no tensors; expected at least one");
}

std::int64_t Dataset::row(std::int64_t sample) const {
  require(sample >= 0, "dataset", "sample {} does not exist", sample);
  const auto s = static_cast<std::uint64_t>(sample), count = static_cast<std::uint64_t>(rows_);
  return static_cast<std::int64_t>(shuffled(s % count, count, seed_, s / count));
}

Batch Dataset::make_batch(std::int64_t first, std::int64_t count) const {
  require(count >= 1, "dataset", "a batch of {} samples; expected at least 1", count);
  Batch batch;
  for (std::int64_t i = 0; i < count; ++i) batch.sample_ids.push_back(first + i);
  for (const auto& [name, tensor] : tensors_) {
    const Tensor rows = Tensor::empty(tensor.shape().with(0, count), tensor.dtype());  // [B, ..]
    const std::size_t bytes = static_cast<std::size_t>(tensor.bytes() / rows_);
    for (std::int64_t i = 0; i < count; ++i)
      std::memcpy(static_cast<char*>(rows.raw()) + static_cast<std::size_t>(i) * bytes,
                  static_cast<const char*>(tensor.raw()) + static_cast<std::size_t>(row(first + i)) * bytes, bytes);
    batch.tensors.emplace(name, rows);
  }
  return batch;
}

}  // namespace trireme
