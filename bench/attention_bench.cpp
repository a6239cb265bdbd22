// Speed of attention, forward and backward, in GFLOP/s and as a share of this machine's peak.
//
//   build/bin/attention_bench                        # every shape, f32 and bf16, 1 thread and all of them
//   build/bin/attention_bench --threads 2 --dtype bf16 --only gpt2 --repeats 9
//
// Causal, batch 4 of GPT-2 124M's heads at three lengths, and the small character model. Queries, keys and values are
// views of one tensor, as the layer has them. FLOPs are those of visible pairs: 4 Dh a pair forward (q k^T and p v), 10
// Dh backward (q k^T again, dout v^T, three gradients); exponentials are not counted. The share is of the peak of
// matrix products (bench/peaks.h). Exponentials run on other units, so it stays well below 100%. Figures are medians
// over repeats, in which all shapes take turns.
#include <fmt/core.h>

#include <cmath>
#include <map>

#include "bench/command_line.h"
#include "bench/peaks.h"
#include "bench/timing.h"
#include "core/cores.h"
#include "core/kernels.h"
#include "core/machine_speed.h"
#include "core/parallel_for.h"

namespace trireme::bench {
namespace {

struct Problem {
  std::string model;
  std::int64_t batch, length, heads, width;  // B, T, H, Dh

  double seen() const {
    const double pairs = 0.5 * static_cast<double>(length * (length + 1));
    return pairs * static_cast<double>(batch * heads * width);
  }
  std::string text() const { return fmt::format("{} [{}, {}, {}, {}]", model, batch, length, heads, width); }
};

const std::vector<Problem> problems = {
    {"char", 12, 64, 4, 32}, {"gpt2", 4, 64, 12, 64}, {"gpt2", 4, 256, 12, 64}, {"gpt2", 4, 1024, 12, 64}};

/// Forward and backward of one problem, with their own tensors.
std::vector<Candidate> candidates(const Problem& p, DType dtype) {
  const Shape shape = {p.batch, p.length, p.heads, p.width};
  const auto third = [&](const Tensor& all, int index) {  // of [B, T, 3, H, Dh]
    return view::select(all, 2, index);
  };
  const Tensor qkv = random_tensor({p.batch, p.length, 3, p.heads, p.width}, 1, dtype);
  const Tensor dout = random_tensor(shape, 2, dtype);
  const Tensor gradients = Tensor::empty(qkv.shape(), dtype);
  const Tensor out = Tensor::empty(shape, dtype), lse = Tensor::empty({p.batch, p.heads, p.length});  // [B, H, T]
  const double scale = 1 / std::sqrt(static_cast<double>(p.width));
  const KernelTable& table = kernels(Device::cpu);
  const auto forward = [=, &table] {
    Tensor to = out, sums = lse;
    table.attention(third(qkv, 0), third(qkv, 1), third(qkv, 2), scale, true, {}, to, sums);
  };
  const auto backward = [=, &table] {
    Tensor dq = third(gradients, 0), dk = third(gradients, 1), dv = third(gradients, 2);
    table.attention_backward(third(qkv, 0), third(qkv, 1), third(qkv, 2), out, lse, dout, scale, true, {}, dq, dk, dv);
  };
  return {{"forward", forward}, {"backward", backward}};
}

class Bench {
 public:
  Bench(std::vector<int> teams, std::string only, int repeats)
      : teams_(std::move(teams)), only_(std::move(only)), repeats_(repeats) {}

  /// Prints while it runs; returns the table in Markdown.
  std::string run(const std::string& dtype_name) {
    const DType dtype = dtype_name == "bf16" ? DType::bf16 : DType::f32;
    std::vector<std::string> columns = {"model [B, T, H, Dh]"};
    std::map<std::string, std::vector<std::string>> cells;  // by problem
    for (const int team : teams_) {
      set_threads(team);
      const OwnCores own_cores(0, team);
      const double peak = measure_flops(team, dtype) * 1e-9;
      fmt::print("# {}, {}: peak {:.1f} GFLOP/s; GFLOP/s and share of peak, medians of {}\n", thread_count(team),
                 dtype_name, peak, repeats_);
      for (const char* pass : {"forward", "backward"})
        columns.push_back(fmt::format("{}, {}", pass, thread_count(team)));
      for (const Problem& p : problems)
        if (only_.empty() || p.model == only_) measure(p, dtype, peak, cells[p.text()]);
    }
    MarkdownTable table(fmt::format("Attention, causal, {}: GFLOP/s (share of peak)", dtype_name), columns);
    for (const Problem& p : problems) {
      if (!cells.contains(p.text())) continue;
      std::vector<std::string> row = {p.text()};
      row.insert(row.end(), cells[p.text()].begin(), cells[p.text()].end());
      table.row(row);
    }
    return table.text();
  }

 private:
  void measure(const Problem& p, DType dtype, double peak, std::vector<std::string>& cells) const {
    std::vector<Candidate> both = candidates(p, dtype);
    take_turns(both, 14 * p.seen(), repeats_);
    const double flops[] = {4 * p.seen(), 10 * p.seen()};
    fmt::print("{:24}", p.text());
    for (std::size_t i = 0; i < both.size(); ++i) {
      cells.push_back(share(flops[i] / both[i].seconds() * 1e-9, peak));
      fmt::print("  {} {:14}", both[i].name, cells.back());
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

  std::vector<int> teams_;
  std::string only_;
  int repeats_;
};

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  CLI::App app{"Speed of attention by shape, element type and threads"};
  std::vector<int> teams;
  std::vector<std::string> dtypes = {"f32", "bf16"};
  std::string only;
  trireme::bench::MarkdownFile markdown;
  int repeats = 7;
  app.add_option("--threads", teams, "numbers of threads to measure (default: 1 and all)")
      ->delimiter(',')
      ->check(CLI::Range(1, trireme::bench::most_threads));
  app.add_option("--only", only, "measure one model's shapes")->check(CLI::IsMember({"char", "gpt2"}));
  app.add_option("--repeats", repeats, "measurements of each")->check(CLI::Range(1, 1 << 20));
  app.add_option("--dtype", dtypes, "element types")->delimiter(',')->check(CLI::IsMember({"f32", "bf16"}));
  markdown.declare(app);
  return trireme::bench::run_benchmark(app, argc, argv, [&] {
    markdown.require_writable();
    if (teams.empty()) teams = trireme::threads() > 1 ? std::vector{1, trireme::threads()} : std::vector{1};
    trireme::bench::Bench bench(teams, only, repeats);
    std::string tables;
    for (const std::string& dtype : dtypes) tables += bench.run(dtype);
    markdown.write(tables);
  });
}
