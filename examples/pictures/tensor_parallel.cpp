// An MLP on two tp ranks, with the residual stream whole or split by positions: what each rank holds, and where the
// ranks communicate. Shapes, shards and placements come from a real nn::Mlp.
#include <fmt/core.h>

#include "examples/pictures/pictures.h"
#include "examples/pictures/svg.h"
#include "nn/mlp.h"

namespace trireme::pictures {

namespace {

constexpr int ranks = 2;
constexpr std::int64_t rows = 6, width = 8, hidden = 32;  // the sizes of docs/parallelism.md, section 5

/// A rank's part of a weight matrix, as a range of hidden features.
struct Piece {
  std::int64_t first = 0, count = 0;  ///< along the hidden dim
};

struct MlpCut {
  Placement residual;
  std::array<Piece, ranks> up, down;
};

MlpCut cut_mlp(bool sequence) {
  MlpCut cut;
  run_on_mesh(fmt::format("tp={}", ranks), [&](const std::shared_ptr<const DeviceMesh>& mesh) {
    const nn::Build b(mesh, DType::f32, 1, {.sequence = sequence});
    const nn::Mlp mlp(b / "mlp", {.width = width, .hidden = hidden});
    const auto rank = static_cast<std::size_t>(mesh->rank());
    for (const ParameterPtr& p : b.parameters()) {
      if (p->name == "mlp.up.weight") cut.up[rank] = {p->rectangle.start[0], p->local.size(0)};      // of [F, D]
      if (p->name == "mlp.down.weight") cut.down[rank] = {p->rectangle.start[1], p->local.size(1)};  // of [D, F]
    }
    if (rank == 0) cut.residual = b.residual();
  });
  return cut;
}

/// The collectives of a redistribute and of its backward, as in the table of parallel/mesh/redistribute.h.
struct Move {
  Placement from, to;
  const char* forward() const {
    if (from.kind == Placement::Kind::partial) return to.sharded() ? "reduce-scatter" : "all-reduce";
    return from.sharded() ? "all-gather" : "nothing";
  }
  const char* backward() const {
    if (from.kind == Placement::Kind::partial) return to.sharded() ? "all-gather" : "nothing";
    return from.sharded() ? "reduce-scatter" : "all-reduce";
  }
};

// Sizes in pixels; the columns from left to right.
constexpr double scale = 4, lanes_top = 66, lane_height = 184;
constexpr double stream_x = 92, entrance = 162, input_x = 206, up_x = 266, hidden_x = 430, down_x = 522, term_x = 582,
                 leave = 658, result_x = 702;

class MlpPicture {
 public:
  MlpPicture(Drawing& drawing, const MlpCut& cut) : d_(drawing), cut_(cut) {}

  void lane(int rank) {
    const double middle = lanes_top + lane_height * rank + 72;
    const BoxStyle whole{}, own{.tone = tone_of_rank(rank)};
    const BoxStyle term{.tone = tone_of_rank(rank), .border = Border::dashed};
    const Piece up = cut_.up[static_cast<std::size_t>(rank)], down = cut_.down[static_cast<std::size_t>(rank)];
    d_.text({20, middle}, fmt::format("rank {}", rank), {.bold = true});
    stream(stream_x, middle, rank, "x");
    matrix(input_x, middle, rows, width, whole, "x");
    sign(input_x + scale * width, up_x, middle, "·");
    ghost(up_x, middle, width, hidden);
    d_.box(box_of(up_x + scale * static_cast<double>(up.first), middle, width, up.count), own);
    note(up_x + scale * hidden / 2, middle + scale * width / 2,
         fmt::format("Aᵀ: columns {}..{}", up.first, up.first + up.count - 1), width, up.count);
    sign(up_x + scale * hidden, hidden_x, middle, "→");
    d_.text({(up_x + scale * hidden + hidden_x) / 2, middle - 14}, "gelu", {.anchor = Anchor::middle, .size = 11});
    matrix(hidden_x, middle, rows, up.count, own, "h");
    sign(hidden_x + scale * static_cast<double>(up.count), down_x, middle, "·");
    ghost(down_x, middle, hidden, width);
    Rect part = box_of(down_x, middle, hidden, width);
    part.y += scale * static_cast<double>(down.first), part.height = scale * static_cast<double>(down.count);
    d_.box(part, own);
    note(down_x + scale * width / 2, middle + scale * hidden / 2,
         fmt::format("Bᵀ: rows {}..{}", down.first, down.first + down.count - 1), down.count, width);
    sign(down_x + scale * width, term_x, middle, "=");
    matrix(term_x, middle, rows, width, term, fmt::format("term {} of y", rank));
    stream(result_x, middle, rank, "y");
    d_.line({stream_x + scale * width + 6, middle}, {entrance - 9, middle}, {.arrow = true});
    d_.line({entrance + 9, middle}, {input_x - 6, middle}, {.arrow = true});
    d_.line({term_x + scale * width + 6, middle}, {leave - 9, middle}, {.arrow = true});
    d_.line({leave + 9, middle}, {result_x - 6, middle}, {.arrow = true});
  }

  /// The communication between the ranks, drawn across both lanes.
  void move(double x, const Move& move) {
    const bool silent = std::string_view(move.forward()) == "nothing";
    const double bottom = lanes_top + lane_height * ranks - 14;
    d_.box(
        {x - 7, lanes_top, 14, bottom - lanes_top},
        {.tone = silent ? Tone::idle : Tone::purple, .border = silent ? Border::dashed : Border::solid, .radius = 4});
    d_.text({x, bottom + 16}, to_string(move.from) + " → " + to_string(move.to), {.anchor = Anchor::middle});
    d_.text({x, bottom + 35}, std::string("forward: ") + move.forward(),
            {.anchor = Anchor::middle, .size = 12, .bold = !silent});
    d_.text({x, bottom + 52}, std::string("backward: ") + move.backward(), {.anchor = Anchor::middle, .size = 12});
  }

  void legend() {
    double y = lanes_top + lane_height * ranks + 2;
    const auto entry = [&](const BoxStyle& style, const char* meaning) {
      d_.box({284, y - 6, 18, 12}, style);
      d_.text({310, y}, meaning, {.size = 12});
      y += 18;
    };
    entry({}, "whole, the same on both ranks");
    entry({.tone = tone_of_rank(0)}, "this rank's part of what is cut");
    entry({.tone = tone_of_rank(0), .border = Border::dashed}, "a term of a sum over the ranks");
  }

 private:
  static Rect box_of(double x, double middle, std::int64_t high, std::int64_t wide) {
    const double height = scale * static_cast<double>(high);
    return {x, middle - height / 2, scale * static_cast<double>(wide), height};
  }
  void ghost(double x, double middle, std::int64_t high, std::int64_t wide) {
    d_.box(box_of(x, middle, high, wide), {.tone = Tone::idle, .border = Border::dashed});
  }
  void matrix(double x, double middle, std::int64_t high, std::int64_t wide, const BoxStyle& style,
              const std::string& name) {
    const Rect box = box_of(x, middle, high, wide);
    d_.box(box, style);
    note(box.centre().x, box.bottom(), name, high, wide);
  }
  void note(double centre, double bottom, const std::string& name, std::int64_t high, std::int64_t wide) {
    d_.text({centre, bottom + 12}, name, {.anchor = Anchor::middle, .size = 12});
    d_.text({centre, bottom + 27}, fmt::format("[{}, {}]", high, wide),
            {.anchor = Anchor::middle, .size = 11, .muted = true});
  }
  void sign(double left, double right, double middle, const char* what) {
    d_.text({(left + right) / 2, middle}, what, {.anchor = Anchor::middle, .size = 16});
  }
  /// A rank's part of the residual stream.
  void stream(double x, double middle, int rank, const char* name) {
    if (!cut_.residual.sharded()) return matrix(x, middle, rows, width, {}, name);
    constexpr std::int64_t own = rows / ranks;
    ghost(x, middle, rows, width);
    Rect part = box_of(x, middle, rows, width);
    part.y += scale * static_cast<double>(own * rank), part.height = scale * static_cast<double>(own);
    d_.box(part, {.tone = tone_of_rank(rank)});
    note(x + scale * width / 2, middle + scale * rows / 2, name, own, width);
  }

  Drawing& d_;
  const MlpCut& cut_;
};

std::string draw_mlp(bool sequence, const char* title, const char* caption, const char* description) {
  const MlpCut cut = cut_mlp(sequence);
  Drawing drawing(title, description);
  drawing.text({20, 24}, title, {.size = 15, .bold = true});
  drawing.text({20, 46}, caption, {.size = 12, .muted = true});
  MlpPicture picture(drawing, cut);
  for (int rank = 0; rank < ranks; ++rank) picture.lane(rank);
  picture.move(entrance, {cut.residual, placement::R});
  picture.move(leave, {placement::P, cut.residual});
  picture.legend();
  return drawing.svg(768, lanes_top + lane_height * ranks + 60);
}

}  // namespace

std::string draw_tensor_parallel() {
  return draw_mlp(
      false, "Tensor parallelism: an MLP on two ranks",
      "Norms, dropout and residual sums before and after it: all positions, the same work on both ranks.",
      "Both ranks have all of x. Each multiplies it by its half of the first matrix, applies GELU to its half "
      "of the hidden units, and multiplies them by its half of the second matrix. The results are terms of a "
      "sum: an all-reduce gives y to both ranks. Backward, the all-reduce is at the entrance.");
}

std::string draw_sequence_parallel() {
  return draw_mlp(
      true, "Sequence parallelism: the same MLP, the residual stream cut by positions",
      "Norms, dropout and residual sums before and after it: a rank's own positions only.",
      "Each rank has half of the positions of x. An all-gather gives both ranks all of them. The products are "
      "those of tensor parallelism. A reduce-scatter sums their results and leaves each rank its own "
      "positions of y. Backward, the two collectives change places.");
}

}  // namespace trireme::pictures
