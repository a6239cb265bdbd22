// How tokens of two ranks reach four experts. Tokens carry their own numbers through nn::ExpertDispatch, which shows
// where each of them goes.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "examples/pictures/pictures.h"
#include "examples/pictures/svg.h"
#include "nn/expert_dispatch.h"

namespace trireme::pictures {

namespace {

constexpr int ranks = 2, experts = 4, tokens_per_rank = 4, experts_per_rank = experts / ranks;
/// The experts that the router chose, for the tokens of rank 0 and then of rank 1.
constexpr std::array<std::int32_t, ranks* tokens_per_rank> chosen = {2, 0, 1, 0, 1, 3, 3, 0};

using Tokens = std::vector<int>;  ///< token numbers, counted over all ranks

/// The tokens that each expert receives.
std::vector<Tokens> dispatched() {
  std::vector<Tokens> arrived(experts);
  run_on_mesh(fmt::format("dp={0},ep={0}", ranks), [&](const std::shared_ptr<const DeviceMesh>& mesh) {
    const int first = mesh->rank() * tokens_per_rank;
    Tensor x = Tensor::empty({tokens_per_rank, 1}, DType::f32);
    for (int i = 0; i < tokens_per_rank; ++i) x.data<float>()[i] = static_cast<float>(first + i);
    const std::span<const std::int32_t> own(chosen.data() + first, tokens_per_rank);
    const nn::ExpertDispatch dispatch(Tensor::from(own, {tokens_per_rank, 1}), experts, *mesh);
    const Tensor rows = dispatch.to_experts(x);  // [R, 1]
    const auto first_expert = static_cast<std::size_t>(mesh->coord(Axis::ep)) * experts_per_rank;
    for (std::size_t e = 0; e < experts_per_rank; ++e) {
      for (std::int64_t row = dispatch.starts()[e]; row < dispatch.starts()[e + 1]; ++row)
        arrived[first_expert + e].push_back(static_cast<int>(rows.data<float>()[row]));
    }
    const Tensor back = dispatch.from_experts(rows);
    require(std::equal(x.span<float>().begin(), x.span<float>().end(), back.span<float>().begin()), "pictures",
            "tokens do not return from the experts in their original order");
  });
  return arrived;
}

/// The tokens that rank `to` receives from rank `from`, in the order of arrival.
Tokens piece(const std::vector<Tokens>& arrived, int from, int to) {
  Tokens tokens;
  for (int e = to * experts_per_rank; e < (to + 1) * experts_per_rank; ++e) {
    for (const int token : arrived[static_cast<std::size_t>(e)])
      if (token / tokens_per_rank == from) tokens.push_back(token);
  }
  return tokens;
}

// Sizes in pixels; columns from left to right.
constexpr double slot = 22, slot_width = 34, lanes_top = 112, lane_height = 194;
constexpr double tokens_x = 84, choice_width = 52, sent_x = 258, received_x = 458, experts_x = 640;

class ExpertsPicture {
 public:
  ExpertsPicture(Drawing& drawing, std::vector<Tokens> arrived) : d_(drawing), arrived_(std::move(arrived)) {
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) longest_ = std::max(longest_, piece(arrived_, from, to).size());
    }
  }

  void draw() {
    std::array<Point, chosen.size()> at{};  // where the next line of each token begins
    headers();
    for (int rank = 0; rank < ranks; ++rank) tokens(rank, at);
    for (const bool sent : {true, false}) {
      for (int rank = 0; rank < ranks; ++rank) {
        for (int other = 0; other < ranks; ++other) exchange(rank, other, sent, at);
      }
    }
    for (int rank = 0; rank < ranks; ++rank) sorted(rank, at);
  }

 private:
  using Places = std::array<Point, chosen.size()>;

  static double lane(int rank) { return lanes_top + lane_height * rank; }
  void headers() {
    const auto header = [&](double x, const char* what, const char* shape) {
      d_.text({x, 60}, what, {.anchor = Anchor::middle, .size = 12, .bold = true});
      d_.text({x, 77}, shape, {.anchor = Anchor::middle, .size = 12, .muted = true});
    };
    header(tokens_x + choice_width / 2, "token → expert", "[N, D]");
    header(sent_x + slot_width / 2, "by destination", "[ep, M, D]");
    header((sent_x + slot_width + received_x) / 2, "all-to-all", "");
    header(received_x + slot_width / 2, "by source", "[ep, M, D]");
    header(experts_x + slot_width / 2, "by expert", "[R, D]");
    for (int rank = 0; rank < ranks; ++rank) {
      d_.text({20, lane(rank) + 77}, fmt::format("rank {}", rank), {.bold = true});
      if (rank > 0) d_.line({20, lane(rank) - 22}, {750, lane(rank) - 22}, {.tone = Tone::idle, .width = 1});
    }
  }
  /// Draws a token in its next column, and the line from its previous place.
  void move(int token, Point corner, Places& at) {
    const auto index = static_cast<std::size_t>(token);
    const Tone tone = tone_of_rank(token / tokens_per_rank);
    const std::string letter(1, static_cast<char>('a' + token));
    if (at[index].x > 0)
      d_.line({at[index].x + 2, at[index].y}, {corner.x - 3, corner.y + slot / 2},
              {.tone = tone, .bend = Bend::horizontal, .width = 1.25, .arrow = true});
    const bool first = corner.x == tokens_x;  // this column also shows the chosen expert
    const Rect box{corner.x, corner.y, first ? choice_width : slot_width, slot};
    d_.label(box, {.tone = tone}, first ? fmt::format("{} → {}", letter, chosen[index]) : letter);
    at[index] = {box.right(), box.centre().y};
  }
  void tokens(int rank, Places& at) {
    for (int i = 0; i < tokens_per_rank; ++i) {
      const int token = rank * tokens_per_rank + i;
      move(token, {tokens_x, lane(rank) + 33 + slot * i}, at);
    }
  }
  /// One piece that a rank sends or has received. All pieces are padded to the length of the longest.
  void exchange(int rank, int other, bool sent, Places& at) {
    const double x = sent ? sent_x : received_x;
    const double y = lane(rank) + other * (slot * static_cast<double>(longest_) + 22);
    const Tokens tokens = sent ? piece(arrived_, rank, other) : piece(arrived_, other, rank);
    for (std::size_t i = 0; i < longest_; ++i) {
      const Point corner{x, y + slot * static_cast<double>(i)};
      if (i < tokens.size()) {
        move(tokens[i], corner, at);
      } else {
        d_.box({corner.x, corner.y, slot_width, slot}, {.tone = Tone::idle, .border = Border::dashed});
      }
    }
    d_.text({x + slot_width / 2, y - 8}, fmt::format("{} rank {}", sent ? "for" : "from", other),
            {.anchor = Anchor::middle, .size = 11, .muted = true});
  }
  void sorted(int rank, Places& at) {
    double y = lane(rank) + 16;
    for (int e = rank * experts_per_rank; e < (rank + 1) * experts_per_rank; ++e) {
      const Tokens& tokens = arrived_[static_cast<std::size_t>(e)];
      const double height = slot * static_cast<double>(tokens.size());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        move(tokens[i], {experts_x, y + slot * static_cast<double>(i)}, at);
      d_.label({experts_x + slot_width + 8, y, 72, height}, {.tone = Tone::plain, .radius = 4},
               fmt::format("expert {}", e), {.size = 12});
      y += height + 14;
    }
  }

  Drawing& d_;
  std::vector<Tokens> arrived_;
  std::size_t longest_ = 0;  // M
};

}  // namespace

std::string draw_experts() {
  Drawing drawing(
      "Tokens on their way to their experts, over two ep ranks",
      "Eight tokens on two ranks, each with one of four experts chosen. A rank sorts its tokens by the rank "
      "that has the expert, fills the pieces up to the longest, and an all-to-all exchanges them. The rows "
      "that arrive are sorted by expert. The outputs go back the same way.");
  drawing.text({20, 24}, "Expert parallelism: tokens go to the ranks that have their experts",
               {.size = 15, .bold = true});
  ExpertsPicture(drawing, dispatched()).draw();
  const double y = lanes_top + lane_height * ranks;
  drawing.text({20, y - 2},
               "Dashed: filled up to M rows, the longest piece of all ranks. The outputs of the experts go "
               "back the same way,",
               {.size = 12, .muted = true});
  drawing.text({20, y + 15}, "to the places they came from, and are weighted by their gates.",
               {.size = 12, .muted = true});
  return drawing.svg(770, y + 34);
}

}  // namespace trireme::pictures
