// Speed of matrix products, in GFLOP/s and as a share of this machine's peak.
//
//   build/bin/gemm_bench                        # every shape, 1 thread and all of them
//   build/bin/gemm_bench --threads 2 --only gpt2 --repeats 9
//
// Shapes are those of training: forward x W^T ("nt"), gradient of the input dy W ("nn"), accumulated gradient of the
// weight dy^T x ("tn", beta = 1). Compares Trireme's products, including OpenBLAS's and oneDNN's if installed, with
// "eigen-omp": Eigen as its manual recommends, with its own threads. "kept" is our product with the weight's panels
// kept from the previous product (core/packed_weights.h), as in all micro-batches of a step after the first with
// --keep-packed on; "tn" has no weight, so there it is the same. All candidates take turns within a repeat, so that
// a disturbance hits all of them; the figure is the median over repeats. The peak is measured just before, with as
// many threads; for bf16 it is that of the instruction in use (bench/peaks.h). --markdown FILE writes the same as a
// table.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "bench/command_line.h"
#include "bench/eigen_omp.h"
#include "bench/peaks.h"
#include "bench/timing.h"
#include "core/cores.h"
#include "core/kernels.h"
#include "core/machine_speed.h"
#include "core/packed_weights.h"
#include "core/parallel_for.h"

namespace trireme::bench {
namespace {

enum class Form { nt, nn, tn };
constexpr const char* form_names[] = {"nt", "nn", "tn"};

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
  for (const std::int64_t tokens : {256, 1024})  // B=4, T=64 and 256; the last is the logits product
    for (const auto& [out, in] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}, {50304, 768}})
      layer("gpt2", tokens, out, in);
  all.push_back({"decode", Form::nt, 1, 3072, 768});
  all.push_back({"decode", Form::nt, 4, 3072, 768});
  all.push_back({"decode", Form::nt, 1, 50304, 768});  // beyond any cache: 155 MB of weights in f32
  all.push_back({"square", Form::nn, 1024, 1024, 1024});
  return all;
}

/// The distinct names of the models: the values of --only.
std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const Problem& p : problems())
    if (names.empty() || names.back() != p.model) names.emplace_back(p.model);
  return names;
}

std::vector<std::string> installed_products() {
  std::vector<std::string> names;
  for (const std::string_view name : gemm_names())
    if (gemm_installed(name)) names.emplace_back(name);
  return names;
}

/// Prints a line; returns the figures of each candidate.
std::vector<std::string> bench(const Problem& p, int team, double peak_gflops, int repeats, DType dtype) {
  const bool at = p.form == Form::tn, bt = p.form == Form::nt;
  Tensor a = random_tensor({at ? p.k : p.m, at ? p.m : p.k}, 1, dtype),
         b = random_tensor({bt ? p.n : p.k, bt ? p.k : p.n}, 2, dtype);
  if (at) a = view::transpose(a, 0, 1);
  if (bt) b = view::transpose(b, 0, 1);
  Tensor c = Tensor::zeros({p.m, p.n}, at ? DType::f32 : dtype);
  const GemmOptions options{.alpha = 1.0, .beta = at ? 1.0 : 0.0, .bias = {}};
  std::vector<Candidate> candidates;
  for (const std::string& name : installed_products()) {
    candidates.push_back({name, [&, name] {
                            select_gemm(name);
                            kernels(Device::cpu).gemm(a, b, c, options);
                          }});
  }
  const PackedWeights panels;
  candidates.push_back({"kept", [&, is_weight = !at] {
                          select_gemm("trireme");
                          kernels(Device::cpu).gemm(a, b, c, {.beta = options.beta, .b_is_weight = is_weight});
                        }});
  if (dtype == DType::f32) candidates.push_back({"eigen-omp", [&] { eigen_omp(a, b, c, at); }, keep_omp_to_own_cores});
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  take_turns(candidates, flops, repeats);
  fmt::print("{:7} {} {:5} {:6} {:5} {:3}", p.model, form_names[static_cast<int>(p.form)], p.m, p.n, p.k, team);
  std::vector<std::string> cells;
  for (const Candidate& each : candidates) {
    cells.push_back(share(flops / each.seconds() * 1e-9, peak_gflops));
    fmt::print("  {:>12}", cells.back());
  }
  fmt::print("\n");
  std::fflush(stdout);
  return cells;
}

/// Prints while it runs; returns the table in Markdown.
std::string run(const std::vector<int>& teams, const std::string& only, int repeats, const std::string& dtype_name) {
  const DType dtype = dtype_name == "bf16" ? DType::bf16 : dtype_name == "f16" ? DType::f16 : DType::f32;
  std::vector<std::string> names = installed_products();
  names.emplace_back("kept");
  if (dtype == DType::f32) names.emplace_back("eigen-omp");
  std::vector<Problem> chosen = problems();
  std::erase_if(chosen, [&](const Problem& p) { return !only.empty() && p.model != only; });
  std::vector<std::string> columns = {"model", "form", "M x N x K"};
  std::vector<std::vector<std::string>> rows;
  for (const Problem& p : chosen)
    rows.push_back(
        {std::string(p.model), form_names[static_cast<int>(p.form)], fmt::format("{} x {} x {}", p.m, p.n, p.k)});
  for (const int team : teams) {
    set_threads(team);
    const OwnCores own_cores(0, team);
    const double gflops = measure_flops(team, dtype) * 1e-9;
    fmt::print("# {}, {}: peak {:.1f} GFLOP/s; GFLOP/s and share of peak, medians of {}\n", thread_count(team),
               dtype_name, gflops, repeats);
    fmt::print("{:7} {:2} {:>5} {:>6} {:>5} {:3}", "model", "", "M", "N", "K", "thr");
    for (const std::string& name : names) {
      fmt::print("  {:>12}", name);
      columns.push_back(fmt::format("{}, {}", name, thread_count(team)));
    }
    fmt::print("\n");
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const std::vector<std::string> cells = bench(chosen[i], team, gflops, repeats, dtype);
      rows[i].insert(rows[i].end(), cells.begin(), cells.end());
    }
  }
  MarkdownTable table(fmt::format("Products, {}: GFLOP/s (share of peak)", dtype_name), columns);
  for (const std::vector<std::string>& row : rows) table.row(row);
  return table.text();
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  CLI::App app{"Speed of matrix products by shape, implementation and threads"};
  std::vector<int> teams;
  std::string only;
  trireme::bench::MarkdownFile markdown;
  std::vector<std::string> dtypes = {"f32"};
  int repeats = 5;
  app.add_option("--threads", teams, "numbers of threads to measure (default: 1 and all)")
      ->delimiter(',')
      ->check(CLI::Range(1, trireme::bench::most_threads));
  app.add_option("--only", only, "measure one model's shapes")->check(CLI::IsMember(trireme::bench::models()));
  app.add_option("--repeats", repeats, "measurements of each")->check(CLI::Range(1, 1 << 20));
  app.add_option("--dtype", dtypes, "element types")->delimiter(',')->check(CLI::IsMember({"f32", "bf16", "f16"}));
  markdown.declare(app);
  return trireme::bench::run_benchmark(app, argc, argv, [&] {
    markdown.require_writable();
    if (teams.empty()) teams = trireme::threads() > 1 ? std::vector{1, trireme::threads()} : std::vector{1};
    std::string tables;
    for (const std::string& dtype : dtypes) tables += trireme::bench::run(teams, only, repeats, dtype);
    markdown.write(tables);
  });
}
