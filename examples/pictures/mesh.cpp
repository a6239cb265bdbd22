// The mesh dp=2,tp=2,pp=2 as a cube: a face for each pipeline stage, an edge for each group of two ranks.
#include <fmt/core.h>

#include <array>
#include <set>

#include "examples/pictures/pictures.h"
#include "ops/plot/svg.h"
#include "parallel/mesh/mesh.h"

namespace trireme::pictures {

namespace {

struct AxisLook {
  Axis axis;
  Tone tone;
  const char* meaning[2];
};
// In the order of world ranks, from the axis that varies fastest.
constexpr std::array<AxisLook, 3> axes = {
    {{Axis::tp, Tone::blue, {"share each matrix;", "sum activations in every block"}},
     {Axis::dp, Tone::orange, {"hold the same weights, see other samples;", "sum gradients once a step"}},
     {Axis::pp, Tone::green, {"hold different blocks; send activations", "forward and gradients back"}}}};

struct RankView {
  int pp = 0, dp = 0, tp = 0;
  std::array<std::vector<int>, axes.size()> groups;  ///< world ranks
};

std::vector<RankView> views() {
  std::vector<RankView> ranks(8);
  run_thread_ranks(8, 1, ProcessGroup::Deadline(1800), [&](const std::shared_ptr<ProcessGroup>& world) {
    const DeviceMesh mesh(world, parse_mesh("dp=2,tp=2,pp=2", 0));
    RankView& view = ranks[static_cast<std::size_t>(mesh.rank())];
    view.pp = mesh.coord(Axis::pp), view.dp = mesh.coord(Axis::dp), view.tp = mesh.coord(Axis::tp);
    for (std::size_t i = 0; i < axes.size(); ++i) view.groups[i] = mesh.group(axes[i].axis).members();
  });
  return ranks;
}

constexpr double node_width = 78, node_height = 42;

/// The centre of a rank: tp goes to the right, dp down, and pp to the upper right, behind the first stage.
Point place(const RankView& rank) {
  return {62.0 + 150 * rank.tp + 216 * rank.pp, 158.0 + 112 * rank.dp - 64 * rank.pp};
}

/// The name of a stage, above its ranks.
void draw_stage(Drawing& drawing, const std::vector<RankView>& ranks, int pp) {
  for (const RankView& rank : ranks) {
    const Point p = place(rank);
    if (rank.pp == pp && rank.dp == 0 && rank.tp == 0)
      drawing.text({p.x - node_width / 2, p.y - node_height / 2 - 13}, fmt::format("stage {}", pp), {.bold = true});
  }
}

/// Lines along `axis` between neighbours of each group whose first rank is on stage `pp`.
void draw_edges(Drawing& drawing, const std::vector<RankView>& ranks, std::size_t axis, int pp) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<int>& group = ranks[rank].groups[axis];
    if (group.front() != static_cast<int>(rank) || ranks[rank].pp != pp) continue;
    for (std::size_t i = 1; i < group.size(); ++i) {
      const Point from = place(ranks[static_cast<std::size_t>(group[i - 1])]);
      drawing.line(from, place(ranks[static_cast<std::size_t>(group[i])]), {.tone = axes[axis].tone, .width = 4});
    }
  }
}

void draw_ranks(Drawing& drawing, const std::vector<RankView>& ranks, int pp) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].pp != pp) continue;
    const Point p = place(ranks[rank]);
    drawing.box({p.x - node_width / 2, p.y - node_height / 2, node_width, node_height}, {.radius = 6});
    drawing.text({p.x, p.y - 8}, fmt::format("rank {}", rank), {.anchor = Anchor::middle, .bold = true});
    drawing.text({p.x, p.y + 9}, fmt::format("dp {}, tp {}", ranks[rank].dp, ranks[rank].tp),
                 {.anchor = Anchor::middle, .size = 11, .muted = true});
  }
}

/// The groups of each axis, and what their members share and exchange.
void draw_groups(Drawing& drawing, const std::vector<RankView>& ranks) {
  constexpr double left = 494;
  double y = 76;
  for (std::size_t i = 0; i < axes.size(); ++i, y += 88) {
    drawing.line({left, y}, {left + 26, y}, {.tone = axes[i].tone, .width = 4});
    drawing.text({left + 36, y}, fmt::format("{} groups", name(axes[i].axis)), {.bold = true});
    std::set<std::vector<int>> groups;
    for (const RankView& rank : ranks) groups.insert(rank.groups[i]);
    double x = left + 126;
    for (const std::vector<int>& group : groups) {
      std::string members;
      for (const int member : group) members += fmt::format("{}{}", members.empty() ? "" : " ", member);
      drawing.label({x, y - 11, 34, 22}, {.tone = axes[i].tone, .radius = 4}, members);
      x += 41;
    }
    for (int row = 0; row < 2; ++row)
      drawing.text({left + 36, y + 22 + 17 * row}, axes[i].meaning[row], {.size = 12, .muted = true});
  }
}

}  // namespace

std::string draw_mesh() {
  const std::vector<RankView> ranks = views();
  Drawing drawing("Eight ranks on the mesh dp=2,tp=2,pp=2",
                  "A cube with a rank at each corner. Ranks 0 and 1 differ in tp, 0 and 2 in dp, 0 and 4 in pp; each "
                  "edge of the cube is a group of two ranks that communicate.");
  drawing.text({23, 26}, "Eight ranks on the mesh dp=2,tp=2,pp=2", {.size = 15, .bold = true});
  constexpr std::size_t tp = 0, dp = 1, pp = 2;  // in `axes`
  for (const int stage : {1, 0}) {               // from the back to the front
    draw_stage(drawing, ranks, stage);
    draw_edges(drawing, ranks, dp, stage);
    draw_edges(drawing, ranks, tp, stage);
    if (stage == 1) draw_edges(drawing, ranks, pp, 0);
    draw_ranks(drawing, ranks, stage);
  }
  draw_groups(drawing, ranks);
  return drawing.svg(800, 306);
}

}  // namespace trireme::pictures
