// Bars of the memory per rank under ZeRO, by the formula of parallel/zero/formula.h.
#include "parallel/zero/formula.h"

#include <fmt/core.h>

#include <array>

#include "examples/pictures/pictures.h"
#include "examples/pictures/svg.h"

namespace trireme::pictures {

namespace {

constexpr int ranks = 4;
constexpr double left = 76, scale = 24, bar_height = 26, pitch = 46, top = 108;

struct Share {
  const char* name;
  Tone tone;
  double ZeroBytes::*bytes;
};
constexpr std::array<Share, 3> shares = {{{"weights, bf16", Tone::blue, &ZeroBytes::weights},
                                          {"gradients, f32", Tone::green, &ZeroBytes::gradients},
                                          {"optimizer state, f32", Tone::orange, &ZeroBytes::optimizer}}};
constexpr std::array<const char*, 4> formulas = {"18", "6 + 12/N", "2 + 16/N", "18/N"};

void draw_stage(Drawing& drawing, int stage) {
  const double y = top + pitch * stage, middle = y + bar_height / 2;
  const ZeroBytes bytes = zero_bytes(stage, ranks), all = zero_bytes(0, ranks);
  drawing.text({left - 12, middle}, fmt::format("--zero {}", stage), {.anchor = Anchor::end});
  drawing.box({left, y, scale * all.total(), bar_height}, {.tone = Tone::idle, .border = Border::dashed});
  double x = left;
  for (const Share& share : shares) {
    const double value = bytes.*share.bytes, length = scale * value;
    const std::string text = fmt::format("{:g}", value);
    drawing.box({x, y, length, bar_height}, {.tone = share.tone});
    const bool fits = text_width(text, 12) < length;  // otherwise the number goes above the bar
    drawing.text({x + length / 2, fits ? middle : y - 9}, text, {.anchor = Anchor::middle, .size = 12});
    x += length;
  }
  const double numbers = left + scale * all.total();
  drawing.text({numbers + 46, middle}, fmt::format("{:g}", bytes.total()), {.anchor = Anchor::end, .bold = true});
  drawing.text({numbers + 66, middle}, formulas[static_cast<std::size_t>(stage)]);
  drawing.text({numbers + 190, middle}, fmt::format("{:.2f}", zero_bytes(stage, 64).total()), {.anchor = Anchor::end});
}

}  // namespace

std::string draw_zero() {
  Drawing drawing(
      "Bytes per parameter on each rank under ZeRO, over 4 ranks",
      "Four bars, one per stage. Stage 0 keeps 2 bytes of weights, 4 of gradients and 12 of optimizer state: "
      "18. Stage 1 cuts the optimizer state over the ranks: 9. Stage 2 also the gradients: 6. Stage 3 also "
      "the weights: 4.5.");
  drawing.text({left, 24}, fmt::format("ZeRO: bytes per parameter on each of N = {} ranks", ranks),
               {.size = 15, .bold = true});
  double x = left;
  for (const Share& share : shares) {
    drawing.box({x, 45, 14, 14}, {.tone = share.tone});
    drawing.text({x + 20, 52}, share.name, {.size = 12});
    x += 44 + text_width(share.name, 12);
  }
  drawing.box({x, 45, 14, 14}, {.tone = Tone::idle, .border = Border::dashed});
  drawing.text({x + 20, 52}, "saved", {.size = 12});
  const double numbers = left + scale * zero_bytes(0, ranks).total();
  const TextStyle head{.anchor = Anchor::end, .size = 12, .muted = true};
  drawing.text({numbers + 46, 88}, "bytes", head);
  drawing.text({numbers + 66, 88}, "formula", {.size = 12, .muted = true});
  drawing.text({numbers + 190, 88}, "N = 64", head);
  for (int stage = 0; stage <= 3; ++stage) draw_stage(drawing, stage);
  return drawing.svg(720, top + pitch * 4);
}

}  // namespace trireme::pictures
