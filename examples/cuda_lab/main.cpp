// cuda_lab: climbs the ladders of examples/cuda_lab. Prints for each level what is new, what limits it, and its error
// against f64; fails if one is wrong. The kernels run under emulation: this shows errors, but no times.
// Read next: docs/ladder.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "examples/cuda_lab/array.h"
#include "examples/cuda_lab/attention/ladder.h"
#include "examples/cuda_lab/gemm/ladder.h"
#include "examples/cuda_lab/ladders.h"
#include "examples/cuda_lab/wrong_levels.h"

namespace {

using namespace trireme;
using namespace trireme::cuda;

std::vector<bf16> random_values(std::size_t count, std::uint64_t stream) {
  std::vector<bf16> values;
  for (std::size_t i = 0; i < count; ++i)
    values.emplace_back(2.0F * static_cast<float>(random_uniform(7, stream, i)) - 1.0F);
  return values;
}

double value(bf16 x) { return static_cast<double>(static_cast<float>(x)); }
double value(float x) { return static_cast<double>(x); }

/// Norm of the difference over the norm of the expected values.
template <class T>
double relative(const std::vector<T>& got, const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(value(got[i]) - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  return std::sqrt(difference / norm);
}

std::vector<double> product_in_f64(const std::vector<bf16>& a, const std::vector<bf16>& b, std::size_t n) {
  std::vector<double> c(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += value(a[i * n + k]) * value(b[k * n + j]);
  return c;
}

// Errors of products and of attention are norms; f32 sums, and a result in bf16 (as tests/cuda_lab/lab_test.cpp
// accepts).
constexpr double accepted_product = 1e-5, accepted_attention = 1.0 / 128;

void climb_gemm(int n, lab::WrongLevels& wrong) {
  const auto size = static_cast<std::size_t>(n);
  const std::vector<bf16> a = random_values(size * size, 1), b = random_values(size * size, 2);
  const std::vector<double> expected = product_in_f64(a, b, size);
  fmt::print("\nProduct of {0} x {0} matrices; limits of a whole H200, by counting ({1})\n", n,
             "examples/cuda_lab/gemm/ladder.h");
  fmt::print("{:<16} {:<30} {:>9} {:<30} {:>9}\n", "level", "new", "TFLOP/s <", "bound by", "error");
  for (const lab::Level& level : lab::gemm_levels()) {
    std::vector<float> c(size * size, std::nanf(""));
    level.run({n, n, n, a.data(), b.data(), c.data()}, nullptr);
    const double error = relative(c, expected);
    fmt::print("{:<16} {:<30} {:>9.1f} {:<30} {:>9.1e}\n", level.name, level.idea, limit_tflops(level.cost),
               clocks(level.cost).bound(), error);
    wrong.add("the product", level.name, error, accepted_product);
  }
}

std::vector<double> attention_in_f64(const lab::Attention& p) {
  const auto tokens = static_cast<std::size_t>(p.tokens), dim = static_cast<std::size_t>(lab::kHeadDim);
  std::vector<double> out(static_cast<std::size_t>(p.heads) * tokens * dim);
  for (std::size_t query = 0; query < out.size() / dim; ++query) {
    const std::size_t first = query / tokens * tokens, keys = p.causal ? query % tokens + 1 : tokens;
    double sum = 0;
    for (std::size_t key = first; key < first + keys; ++key) {
      double score = 0;
      for (std::size_t d = 0; d < dim; ++d) score += value(p.q[query * dim + d]) * value(p.k[key * dim + d]);
      const double weight = std::exp(score * static_cast<double>(p.scale));
      sum += weight;
      for (std::size_t d = 0; d < dim; ++d) out[query * dim + d] += weight * value(p.v[key * dim + d]);
    }
    for (std::size_t d = 0; d < dim; ++d) out[query * dim + d] /= sum;
  }
  return out;
}

void climb_attention(int tokens, lab::WrongLevels& wrong) {
  const auto size = static_cast<std::size_t>(tokens) * lab::kHeadDim;
  const std::vector<bf16> q = random_values(size, 1), k = random_values(size, 2), v = random_values(size, 3);
  std::vector<float> scores(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(tokens));
  std::vector<bf16> out(size);
  const lab::Attention p{1, tokens, true, 0.125F, q.data(), k.data(), v.data(), out.data(), scores.data()};
  const std::vector<double> expected = attention_in_f64(p);
  fmt::print("\nAttention, causal, {} tokens, a head of {}; bytes a head of 4096 tokens moves beyond L1 (not causal)\n",
             tokens, lab::kHeadDim);
  fmt::print("{:<16} {:<40} {:>10} {:>9}\n", "level", "new", "MiB", "error");
  for (const lab::AttentionLevel& level : lab::attention_levels()) {
    std::fill(out.begin(), out.end(), bf16(std::nanf("")));
    level.run(p, nullptr);
    const double error = relative(out, expected);
    fmt::print("{:<16} {:<40} {:>10.0f} {:>9.1e}\n", level.name, level.idea, level.bytes(4096) / (1 << 20), error);
    wrong.add("attention", level.name, error, accepted_attention);
  }
}

template <class F>
double seconds_of(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs all levels of the n x n product, or of attention, without checking the results.
double seconds_of_products(int n) {
  const auto size = static_cast<std::size_t>(n);
  const std::vector<bf16> a = random_values(size * size, 1);
  std::vector<float> c(size * size);
  return seconds_of([&] {
    for (const lab::Level& level : lab::gemm_levels()) level.run({n, n, n, a.data(), a.data(), c.data()}, nullptr);
  });
}
double seconds_of_attention(int tokens) {
  const auto size = static_cast<std::size_t>(tokens) * lab::kHeadDim;
  const std::vector<bf16> x = random_values(size, 1);
  std::vector<float> scores(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(tokens));
  std::vector<bf16> out(size);
  const lab::Attention p{1, tokens, true, 0.125F, x.data(), x.data(), x.data(), out.data(), scores.data()};
  return seconds_of([&] {
    for (const lab::AttentionLevel& level : lab::attention_levels()) level.run(p, nullptr);
  });
}

/// Prints what will run and how long it may take. The emulator does every multiplication of every thread. So this times
/// a problem of moderate size and scales with the cube of --size and the square of --tokens.
void announce(int size, int tokens) {
  constexpr int timed_size = 128, timed_tokens = 384;
  fmt::print("The kernels run under emulation: their results are real, and there are no times.\n");
  fmt::print("To come: {} levels of a product, {} of attention, and {} ladders of other kernels.\n",
             lab::gemm_levels().size(), lab::attention_levels().size(), lab::ladders<lab::NoArray>().size());
  double products = 0, attention = 0;
  if (size > timed_size) products = seconds_of_products(timed_size) * std::pow(double{1} * size / timed_size, 3);
  if (tokens > timed_tokens)
    attention = seconds_of_attention(timed_tokens) * std::pow(double{1} * tokens / timed_tokens, 2);
  if (products + attention == 0) return;
  fmt::print("At the emulator's speed here that takes some {:.0f} s", products + attention + 1);
  if (products > 0) fmt::print(", {:.0f} of them for --size {}", products, size);
  if (attention > 0) fmt::print(", {:.0f} of them for --tokens {}", attention, tokens);
  fmt::print(".\n");
}

/// Costs for GPT-2, errors of a small problem: the last of the ragged sizes.
void climb_memory(std::size_t at, lab::WrongLevels& wrong) {
  const lab::Ladder ladder = lab::ladders<lab::Array>()[at];
  const auto levels = lab::ladders<lab::NoArray>()[at].make(ladder.gpt2)->levels();
  const std::unique_ptr<lab::Trial> trial = ladder.make(ladder.ragged.back());
  fmt::print("\n{}, as GPT-2 124M needs it; microseconds of an H200\n", ladder.name);
  fmt::print("{:<16} {:<42} {:>9} {:>9} {:>9}  {:<12} {:>9}\n", "level", "new", "MB", "us >=", "forecast", "bound by",
             "error");
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const lab::MemoryCost cost = levels[level].cost;
    trial->reset();
    trial->run(level, nullptr);
    const double error = trial->error();
    fmt::print("{:<16} {:<42} {:>9.0f} {:>9.0f} {:>9.0f}  {:<12} {:>9.1e}\n", levels[level].name, levels[level].idea,
               cost.bytes / 1e6, cost.least(), cost.forecast, cost.bound(), error);
    wrong.add(ladder.name, levels[level].name, error, 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The ladders of kernels, from naive to the ones in use: what each level is, its limit, and its error.");
  int size = 128, tokens = 96;
  app.add_option("--size", size, "rows and columns of the matrices, a multiple of 8")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  app.add_option("--tokens", tokens, "tokens of the attention")->check(CLI::Range(1, 4096))->capture_default_str();
  try {
    app.parse(argc, argv);
    if (size % 8 != 0)
      fail(ExitCode::usage, "cuda_lab", "--size {} is not a multiple of 8, which copies of 16 bytes need; try {}", size,
           size / 8 * 8 + 8);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // line by line, also into a pipe
    announce(size, tokens);
    lab::WrongLevels wrong;
    climb_gemm(size, wrong);
    climb_attention(tokens, wrong);
    for (std::size_t ladder = 0; ladder < lab::ladders<lab::NoArray>().size(); ++ladder) climb_memory(ladder, wrong);
    fmt::print("\nErrors of these: the largest distance from f64, as part of what the precision accounts for.\n");
    if (!wrong.names().empty())
      fail(ExitCode::internal, "cuda_lab", "far from f64: {}; change these levels", fmt::join(wrong.names(), ", "));
    return 0;
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : static_cast<int>(ExitCode::usage);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
