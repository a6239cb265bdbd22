// Speed of matrix products, in GFLOP/s and as a share of what this machine's multiply-adders can do.
//
//   build/bin/gemm_bench                        # every shape, 1 thread and all of them
//   build/bin/gemm_bench --threads 2 --only gpt2 --repeats 9
//
// Shapes are those of training: forward x W^T ("nt"), gradient of the input dy W ("nn"), gradient of the weight
// dy^T x added to what is there ("tn", beta = 1). Beside the products built into Trireme stands "eigen-omp": Eigen
// called as its manual says, with its own threads. All candidates take turns within a repeat, so that a disturbance
// hits all of them; the figure is the median over repeats. The peak is measured just before, on as many threads.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "bench/eigen_omp.h"
#include "core/cpu/simd.h"
#include "core/kernels.h"
#include "core/parallel_for.h"
#include "core/random.h"

namespace trireme::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// GFLOP/s of independent f32 multiply-add chains on `team` threads at once: the best of a few tries.
double peak(int team) {
  constexpr int chains = 12, steps = 1'000'000;
  constexpr double flops = 2.0 * chains * steps * cpu::lanes<float>;
  double best = 0;
  for (int attempt = 0; attempt < 7; ++attempt) {
    const auto start = Clock::now();
    parallel_team(team, [&](int, int) {
      volatile float source = 0.5F;  // unknown to the compiler, so that no chain is folded into another
      cpu::Vector<float> sum[chains];
      for (cpu::Vector<float>& chain : sum) chain = cpu::Vector<float>{} + source;
      const cpu::Vector<float> factor = cpu::Vector<float>{} + source, term = factor;
      for (int step = 0; step < steps; ++step) {
#pragma GCC unroll 12
        for (cpu::Vector<float>& chain : sum) chain = chain * factor + term;
      }
      cpu::Vector<float> all = sum[0];
      for (int i = 1; i < chains; ++i) all += sum[i];
      volatile float sink = all[0];
      static_cast<void>(sink);
    });
    best = std::max(best, flops * team / seconds_since(start) * 1e-9);
  }
  return best;
}

enum class Form { nt, nn, tn };

struct Problem {
  std::string_view model;
  Form form;
  std::int64_t m, n, k;
};

std::vector<Problem> problems() {
  std::vector<Problem> all;
  const auto layer = [&](std::string_view model, std::int64_t tokens, std::int64_t out, std::int64_t in) {
    all.push_back({model, Form::nt, tokens, out, in});
    all.push_back({model, Form::nn, tokens, in, out});
    all.push_back({model, Form::tn, out, in, tokens});
  };
  for (const auto& [out, in] : {std::pair{384, 128}, {128, 128}, {512, 128}, {128, 512}}) layer("char", 768, out, in);
  for (const auto& [out, in] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}})
    layer("gpt2", 1024, out, in);
  all.push_back({"gpt2", Form::nt, 256, 50304, 768});
  all.push_back({"decode", Form::nt, 1, 3072, 768});
  all.push_back({"decode", Form::nt, 4, 3072, 768});
  all.push_back({"square", Form::nn, 1024, 1024, 1024});
  return all;
}

Tensor random_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t stream, DType dtype) {
  Tensor x = Tensor::empty({rows, columns});
  float* data = x.data<float>();
  for (std::int64_t i = 0; i < x.count(); ++i)
    data[i] = random_uniform(1, stream, static_cast<std::uint64_t>(i)) - 0.5F;
  return cast(x, dtype);
}

struct Candidate {
  std::string name;
  std::function<void()> run;
  std::vector<double> times = {};
};

/// Median seconds of one call, candidates taking turns.
void measure(std::vector<Candidate>& candidates, double flops, int repeats) {
  const int calls = static_cast<int>(std::clamp(2e8 / flops, 1.0, 2000.0));
  for (Candidate& each : candidates) each.run();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (Candidate& each : candidates) {
      const auto start = Clock::now();
      for (int call = 0; call < calls; ++call) each.run();
      each.times.push_back(seconds_since(start) / calls);
    }
  }
}

void bench(const Problem& p, int team, double peak_gflops, int repeats, DType dtype) {
  const bool at = p.form == Form::tn, bt = p.form == Form::nt;
  Tensor a = random_matrix(at ? p.k : p.m, at ? p.m : p.k, 1, dtype),
         b = random_matrix(bt ? p.n : p.k, bt ? p.k : p.n, 2, dtype);
  if (at) a = view::transpose(a, 0, 1);
  if (bt) b = view::transpose(b, 0, 1);
  Tensor c = Tensor::zeros({p.m, p.n}, at ? DType::f32 : dtype);
  const GemmOptions options{.alpha = 1.0, .beta = at ? 1.0 : 0.0, .bias = {}};
  std::vector<Candidate> candidates;
  for (const std::string_view name : gemm_names()) {
    candidates.push_back({std::string(name), [&, name] {
                            select_gemm(name);
                            kernels(Device::cpu).gemm(a, b, c, options);
                          }});
  }
  if (dtype == DType::f32) candidates.push_back({"eigen-omp", [&] { eigen_omp(a, b, c, at); }});
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  measure(candidates, flops, repeats);
  constexpr std::string_view forms[] = {"nt", "nn", "tn"};
  fmt::print("{:7} {} {:5} {:6} {:5} {:3}", p.model, forms[static_cast<int>(p.form)], p.m, p.n, p.k, team);
  for (const Candidate& each : candidates) {
    const double gflops = flops / median(each.times) * 1e-9;
    fmt::print("  {:7.1f} {:3.0f}%", gflops, 100 * gflops / peak_gflops);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

void run(const std::vector<int>& teams, const std::string& only, int repeats, const std::string& dtype_name) {
  const DType dtype = dtype_name == "bf16" ? DType::bf16 : dtype_name == "f16" ? DType::f16 : DType::f32;
  for (const int team : teams) {
    set_threads(team);
    const double gflops = peak(team);
    fmt::print("# {} threads, {}: peak {:.1f} GFLOP/s in f32; GFLOP/s and share of peak, medians of {}\n", team,
               dtype_name, gflops, repeats);
    fmt::print("{:7} {:2} {:>5} {:>6} {:>5} {:3}", "model", "", "M", "N", "K", "thr");
    for (const std::string_view name : gemm_names()) fmt::print("  {:>12}", name);
    fmt::print("  {:>12}\n", dtype == DType::f32 ? "eigen-omp" : "");
    for (const Problem& p : problems()) {
      if (only.empty() || p.model == only) bench(p, team, gflops, repeats, dtype);
    }
  }
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  CLI::App app{"Speed of matrix products by shape, implementation and threads"};
  std::vector<int> teams;
  std::string only, dtype = "f32";
  int repeats = 5;
  app.add_option("--threads", teams, "numbers of threads to measure (default: 1 and all)")->delimiter(',');
  app.add_option("--only", only, "measure one model's shapes: char, gpt2, decode or square");
  app.add_option("--repeats", repeats, "measurements of each")->check(CLI::PositiveNumber);
  app.add_option("--dtype", dtype, "element type")->check(CLI::IsMember({"f32", "bf16", "f16"}));
  CLI11_PARSE(app, argc, argv);
  if (teams.empty()) teams = trireme::threads() > 1 ? std::vector{1, trireme::threads()} : std::vector{1};
  trireme::bench::run(teams, only, repeats, dtype);
}
