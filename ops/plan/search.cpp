#include "ops/plan/search.h"

#include <algorithm>

#include "core/error.h"

namespace trireme::plan {

std::vector<MeshShape> meshes(int ranks, int experts) {
  std::vector<MeshShape> all;
  const auto divides = [](int part, int whole) { return whole % part == 0; };
  for (int pp = 1; pp <= ranks; ++pp)
    for (int tp = 1; divides(pp, ranks) && tp <= ranks / pp; ++tp)
      for (int cp = 1; divides(pp * tp, ranks) && cp <= ranks / pp / tp; ++cp) {
        if (!divides(pp * tp * cp, ranks)) continue;
        const int dp = ranks / (pp * tp * cp);
        for (int ep = 1; ep <= std::clamp(experts, 1, dp * cp); ++ep)
          if (divides(ep, dp * cp) && divides(ep, std::max(experts, 1))) all.push_back({{pp, dp, cp, tp, ep}});
      }
  return all;
}

Search search(const std::vector<MeshShape>& meshes, const std::function<TrainOptions(const MeshShape&)>& options_on,
              const DryProgram& program, const MachineModel& machine, double memory) {
  Search result;
  for (const MeshShape& mesh : meshes) {
    try {
      const TrainOptions options = options_on(mesh);
      const RankMemory need = largest_memory(options, program);
      if (static_cast<double>(need.peak) > memory) {
        result.too_large.emplace_back(mesh, need);
        continue;
      }
      result.choices.push_back({mesh, predict(options, program, machine), need});
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;
      result.impossible.emplace_back(mesh, error.reason());
    }
  }
  std::stable_sort(result.choices.begin(), result.choices.end(),
                   [](const Choice& a, const Choice& b) { return a.prediction.seconds < b.prediction.seconds; });
  std::stable_sort(result.too_large.begin(), result.too_large.end(),
                   [](const auto& a, const auto& b) { return a.second.peak < b.second.peak; });
  return result;
}

}  // namespace trireme::plan
