// Packing: every document whole, rows full, and what is cropped and padded.
#include "data/packing.h"
#include "data/chat/packed_dialogues.h"
#include "data/mixture.h"
#include "data/prefetch.h"
#include "data/sampler.h"

#include <doctest/doctest.h>

#include <set>

#include "helpers.h"
#include "tests/support/errors.h"

using namespace trireme;
using namespace trireme::testing;

namespace packing_test {

constexpr std::int32_t separator = 0;

/// Documents of these lengths, which a separator begins, except the first: 1 2 3 0 4 5 0 6 ...
TokenRange corpus_of(const std::vector<std::int64_t>& lengths) {
  TokenBuffer buffer(1 << 20);
  std::int32_t next = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(lengths[i]));
    for (auto& id : ids) id = next++;
    if (i > 0) ids[0] = separator;
    buffer.append(ids);
  }
  return TokenRange(in_memory(std::move(buffer)));
}

/// The rows of one epoch: inputs and the last target; -1 where a place is padding.
std::vector<std::vector<std::int32_t>> rows_of(const PackedRows& packed, std::int64_t context) {
  std::vector<std::vector<std::int32_t>> rows;
  for (std::int64_t s = 0; s < packed.rows(); ++s) {
    const Batch batch = packed.make_batch(s, 1);
    const auto inputs = batch["inputs"].span<std::int32_t>(), targets = batch["targets"].span<std::int32_t>();
    std::vector<std::int32_t> row = {inputs[0]};
    for (std::int64_t t = 0; t < context; ++t) {
      const auto i = static_cast<std::size_t>(t);
      row.push_back(targets[i]);
      if (t + 1 < context && targets[i] >= 0) REQUIRE(inputs[i + 1] == targets[i]);
    }
    rows.push_back(row);
  }
  return rows;
}

TEST_CASE("targets_of() counts the targets that batches have, also through a mixture") {
  for (const Packing packing : {Packing::best_fit, Packing::best_fit_crop}) {
    const auto packed = std::make_shared<PackedRows>(corpus_of({4, 7, 2, 9, 3, 6, 25}), 9, separator, packing, 1);
    const auto valid = [](const Batch& batch) {
      const std::span<const std::int32_t> targets = batch["targets"].span<const std::int32_t>();
      return std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; });
    };
    const Mixture mixture({packed, packed}, {0.5, 0.5}, 3);
    for (std::int64_t first = 0; first < 3 * packed->rows(); ++first) {
      CHECK(packed->targets_of(first, 2) == valid(packed->make_batch(first, 2)));
      CHECK(mixture.targets_of(first, 3) == valid(mixture.make_batch(first, 3)));
    }
  }
}

namespace {

/// Every kind of samples that training can be asked for.
std::vector<std::shared_ptr<const DataSource>> all_kinds() {
  const TokenRange corpus = corpus_of({4, 7, 2, 9, 3, 6, 25, 8, 8, 5, 11, 3});
  const auto best = std::make_shared<PackedRows>(corpus, 9, separator, Packing::best_fit, 1);
  const auto cropped = std::make_shared<PackedRows>(corpus, 9, separator, Packing::best_fit_crop, 2);
  const auto cut = std::make_shared<Sampler>(corpus, 9, 3);
  std::vector<TokenizedDialogue> dialogues(7);
  for (std::size_t i = 0; i < dialogues.size(); ++i)
    for (std::size_t k = 0; k < 4 + i % 5; ++k) {
      dialogues[i].ids.push_back(static_cast<std::int32_t>(10 * i + k));
      dialogues[i].target.push_back(k >= 2);
    }
  const std::vector<std::shared_ptr<const DataSource>> three = {best, cropped, cut};
  return {best, cropped, cut, std::make_shared<PackedDialogues>(dialogues, 9, 4, true),
          std::make_shared<Mixture>(three, std::vector<double>{0.5, 0.2, 0.3}, 5)};
}

/// All tensors of a batch, sample by sample, each with its number.
void append_samples(const Batch& batch, std::vector<std::vector<std::int32_t>>& to) {
  for (std::size_t i = 0; i < batch.sample_ids.size(); ++i) {
    std::vector<std::int32_t> sample = {static_cast<std::int32_t>(batch.sample_ids[i])};
    for (const auto& [name, tensor] : batch.tensors) {
      const auto row = static_cast<std::size_t>(tensor.size(1));
      const auto values = tensor.span<const std::int32_t>().subspan(i * row, row);
      sample.insert(sample.end(), values.begin(), values.end());
    }
    to.push_back(sample);
  }
}

}  // namespace

TEST_CASE("each packing gives the same samples to any ranks and workers, also after a second and a third resume") {
  for (const std::shared_ptr<const DataSource>& source : all_kinds()) {
    constexpr std::int64_t step = 12;
    std::vector<std::vector<std::int32_t>> expected, seen;
    append_samples(source->make_batch(0, 6 * step), expected);
    std::int64_t consumed = 0;
    for (const auto& [ranks, workers, micro_batch, steps] :
         {std::tuple(1, 1, 4, 1), std::tuple(2, 3, 3, 2), std::tuple(4, 2, 3, 1), std::tuple(3, 4, 1, 2)}) {
      std::int64_t after = consumed;
      for (int s = 0; s < steps; ++s)  // all ranks of a step, one after the other: the order of its samples
        for (int rank = 0; rank < ranks; ++rank) {
          const BatchPlan plan{.global_batch = step, .micro_batch = micro_batch, .dp_rank = rank, .dp_size = ranks};
          Loader loader(source, plan, consumed + s * step, 4, workers);
          for (std::int64_t m = 0; m < plan.micro_batches(); ++m) append_samples(loader.next(), seen);
          after = loader.consumed();
        }
      consumed = after;
    }
    CHECK(consumed == 6 * step);
    CHECK(seen == expected);
  }
}

TEST_CASE("best fit: a small corpus by hand") {
  // Rows of 10. Longest first: 9 -> row 0; 7 -> row 1; 6 -> row 2; 4 -> row 2 (room 4); 3 -> row 1 (room 3); 2 -> row
  // 3.
  const TokenRange tokens = corpus_of({4, 7, 2, 9, 3, 6});
  const PackedRows packed(tokens, 9, separator, Packing::best_fit, 1);
  const PackingReport& r = packed.report();
  CHECK(packed.rows() == 4);
  CHECK(r.documents == 6);
  CHECK(r.tokens == 31);
  CHECK(r.cut == 0);
  CHECK(r.cropped == 0);
  CHECK(r.padding == 9);
  std::set<std::vector<std::int32_t>> rows;
  for (const auto& row : rows_of(packed, 9)) rows.insert(row);
  CHECK(rows.contains({0, 15, 16, 17, 18, 19, 20, 21, 22, 0}));  // 9, and its separator
  CHECK(rows.contains({0, 6, 7, 8, 9, 10, 11, 0, 24, 25}));      // 7 + 3
  CHECK(rows.contains({0, 27, 28, 29, 30, 31, 1, 2, 3, 4}));     // 6 + the first document, which has no separator
  CHECK(rows.contains({0, 13, 0, -1, -1, -1, -1, -1, -1, -1}));  // 2
}

TEST_CASE("best fit with cropping: a small corpus by hand") {
  // Rows of 10: 9 + the beginning (1) of 2; 7 + 3; 6 + 4.
  const TokenRange tokens = corpus_of({4, 7, 2, 9, 3, 6});
  const PackedRows packed(tokens, 9, separator, Packing::best_fit_crop, 1);
  CHECK(packed.rows() == 3);
  CHECK(packed.report().cut == 1);
  CHECK(packed.report().cropped == 1);
  CHECK(packed.report().padding == 0);
  for (const auto& row : rows_of(packed, 9)) CHECK(std::count(row.begin(), row.end(), -1) == 0);
}

TEST_CASE("packing of random documents: each token once, no document cut that fits, little padding") {
  std::mt19937_64 random(5);
  for (const std::int64_t context : {7, 63, 64, 200}) {
    const std::int64_t row = context + 1;
    std::vector<std::int64_t> lengths;
    std::int64_t longer = 0;
    for (int i = 0; i < 500; ++i) {
      lengths.push_back(static_cast<std::int64_t>(2 + random() % 90 + (i % 50 == 0 ? random() % 500 : 0)));
      longer += lengths.back() > row ? 1 : 0;
    }
    const TokenRange tokens = corpus_of(lengths);
    const PackedRows fit(tokens, context, separator, Packing::best_fit, 3);
    CHECK(fit.report().cut == longer);
    CHECK(fit.report().rows * row == fit.report().tokens - fit.report().cropped + fit.report().padding);
    if (context >= 200) CHECK(fit.report().padding * 100 < fit.report().tokens);
    // Epoch 1 has the rows of epoch 0 in another order.
    std::multiset<std::int64_t> firsts[2];
    std::multiset<std::int32_t> ids;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (std::int64_t s = 0; s < fit.rows(); ++s) {
        const Batch batch = fit.make_batch(epoch * fit.rows() + s, 1);
        firsts[epoch].insert(batch["inputs"].span<std::int32_t>()[1]);
        const auto targets = batch["targets"].span<std::int32_t>();
        if (epoch == 0) ids.insert(targets.begin(), targets.end());
      }
    CHECK(firsts[0] == firsts[1]);
    for (auto at = ids.upper_bound(0); at != ids.end(); ++at) REQUIRE(ids.count(*at) == 1);
    const PackedRows crop(tokens, context, separator, Packing::best_fit_crop, 3);
    CHECK(crop.report().padding < row);
    CHECK(crop.report().rows * row == crop.report().tokens - crop.report().cropped + crop.report().padding);
    CHECK(report_cut(tokens, context, separator).cut > fit.report().cut);
  }
}

TEST_CASE("packing: separators in a row, or nothing but separators") {
  TokenBuffer buffer(100);
  buffer.append(std::vector<std::int32_t>{0, 0, 5, 6, 0, 0, 0, 7, 0});
  const PackingReport report = report_cut(TokenRange(in_memory(std::move(buffer))), 2, separator);
  CHECK(report.documents == 3);  // 0 0 5 6, 0 0 0 7, 0
  CHECK(report.tokens == 9);
  TokenBuffer only(100);
  only.append(std::vector<std::int32_t>(50, 0));
  CHECK(PackedRows(TokenRange(in_memory(std::move(only))), 9, separator, Packing::best_fit, 1).rows() == 5);
}

TEST_CASE("packing: samples depend on the seed and their number only; what cannot be packed") {
  const TokenRange tokens = corpus_of(std::vector<std::int64_t>(40, 5));
  const PackedRows one(tokens, 9, separator, Packing::best_fit, 1), same(tokens, 9, separator, Packing::best_fit, 1),
      other(tokens, 9, separator, Packing::best_fit, 2);
  CHECK(rows_of(one, 9) == rows_of(same, 9));
  CHECK(rows_of(one, 9) != rows_of(other, 9));
  const Batch three = one.make_batch(4, 3), last = one.make_batch(6, 1);
  CHECK(three["inputs"].span<std::int32_t>()[18] == last["inputs"].span<std::int32_t>()[0]);
  CHECK(three.sample_ids == std::vector<std::int64_t>{4, 5, 6});
  CHECK(contains(error_of([] { PackedRows(corpus_of({1}), 9, separator, Packing::best_fit, 1); }, ExitCode::data),
                 "no document of at least 2 tokens"));
}

}  // namespace packing_test
