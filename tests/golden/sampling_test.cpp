// The probabilities that tokens are drawn with, compared with the logits processors of transformers.
#include "train/gpt/sampling.h"

#include "tests/support/golden.h"

using namespace trireme;
using namespace trireme::testing;

namespace sampling_test {

TEST_CASE("penalties, temperature, top-k, top-p and min-p leave the probabilities of transformers' processors") {
  const GoldenFile golden("sampling");
  for (const std::string name : {"plain", "temperature", "top_k", "top_p", "min_p", "repetition", "repetition_below_1",
                                 "frequency", "presence", "all"}) {
    CAPTURE(name);
    const Tensor logits = golden.read(name + ".logits", DType::f32), o = golden.read(name + ".options");
    const Tensor expected = golden.read(name + ".probabilities");
    const Tensor prompt = golden.read(name + ".prompt"), generated = golden.read(name + ".generated");
    const double* f = o.data<double>();
    const GenerateOptions options = {.temperature = f[3],
                                     .top_k = static_cast<std::int64_t>(f[4]),
                                     .top_p = f[5],
                                     .min_p = f[6],
                                     .repetition_penalty = f[0],
                                     .presence_penalty = f[2],
                                     .frequency_penalty = f[1]};
    CHECK(options.penalises() == (f[0] != 1 || f[1] != 0 || f[2] != 0));
    const std::int64_t vocab = logits.size(1);
    for (std::int64_t row = 0; row < logits.size(0); ++row) {
      std::vector<float> z(logits.data<float>() + row * vocab, logits.data<float>() + (row + 1) * vocab);
      penalise(z, prompt.span<std::int32_t>(), generated.span<std::int32_t>(), options);
      const std::vector<double> got = token_probabilities(z, options);
      // Penalised logits are f32, and so is the error of each: 2^-24 of the largest, for a token and for the sum.
      float largest = 0;
      for (const float each : z) largest = std::max(largest, std::abs(each));
      const double rounding = 2 * 0x1p-24 * static_cast<double>(largest) / options.temperature + 1e-14;
      double sum = 0;
      for (std::int64_t id = 0; id < vocab; ++id) {
        const double want = expected.data<double>()[row * vocab + id];
        const double p = got[static_cast<std::size_t>(id)];
        CHECK((p == 0) == (want == 0));  // the same tokens are left
        CHECK(std::abs(p - want) <= rounding * want);
        sum += p;
      }
      CHECK(std::abs(sum - 1) < 1e-12);
    }
  }
}

TEST_CASE("no penalty makes a logit that is not finite") {
  for (const GenerateOptions& options :
       {GenerateOptions{.repetition_penalty = 1e-39}, GenerateOptions{.repetition_penalty = 1e300},
        GenerateOptions{.presence_penalty = -1e39}, GenerateOptions{.frequency_penalty = 1e39}}) {
    std::vector<float> logits = {3, -2, 1, -INFINITY};
    const std::vector<std::int32_t> seen = {0, 1, 3};
    penalise(logits, seen, seen, options);
    for (std::size_t id = 0; id < 3; ++id) CHECK(std::isfinite(logits[id]));
    CHECK(logits[3] == -INFINITY);
    CHECK_NOTHROW(pick_token(logits, options, 0.5));
  }
}

TEST_CASE("tokens are drawn with these probabilities") {
  const GoldenFile golden("sampling");
  const Tensor logits = golden.read("all.logits", DType::f32);
  const GenerateOptions options = {.temperature = 1.1, .top_k = 9, .top_p = 0.95, .min_p = 0.02};
  const std::span<const float> z = logits.span<float>().first(static_cast<std::size_t>(logits.size(1)));
  const std::vector<double> p = token_probabilities(z, options);
  std::vector<double> drawn(p.size(), 0.0);
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i)
    drawn[static_cast<std::size_t>(pick_token(z, options, (i + 0.5) / draws))] += 1.0 / draws;
  for (std::size_t id = 0; id < p.size(); ++id) CHECK(std::abs(drawn[id] - p[id]) < 2.0 / draws);
}

TEST_CASE("the random number of a token depends on seed and number only, and log-probabilities are of the softmax") {
  CHECK(random_of_token(5, 3) == random_of_token(5, 3));
  CHECK(random_of_token(5, 3) != random_of_token(6, 3));
  CHECK(random_of_token(5, 3) != random_of_token(5, 4));
  const std::vector<float> z = {1, 3, 2, 3};
  const double all = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  CHECK(std::abs(log_probability(z, 2) - (2 - all)) < 1e-12);
  const std::vector<TokenLogprob> top = likeliest_tokens(z, 3);
  REQUIRE(top.size() == 3);
  CHECK(top[0].id == 1);  // of equals, the lower id
  CHECK(top[1].id == 3);
  CHECK(top[2].id == 2);
  CHECK(std::abs(static_cast<double>(top[2].logprob) - (2 - all)) < 1e-6);
  CHECK(likeliest_tokens(z, 10).size() == 4);
}

}  // namespace sampling_test
