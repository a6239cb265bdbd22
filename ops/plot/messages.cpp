#include "ops/plot/messages.h"

#include <fmt/core.h>

#include "ops/plot/svg.h"

namespace trireme::pictures {

std::string draw_messages(const std::string& title, int ranks, const comm::Simulated& collective) {
  constexpr double left = 70, top = 44, row = 30, width = 640, dot = 6;
  const double scale = collective.seconds > 0 ? width / collective.seconds : 0;
  const auto place = [&](double seconds, int rank) { return Point{left + seconds * scale, top + row * rank}; };
  Drawing drawing(title, fmt::format("{} messages between {} ranks, in {:.4g} ms on an idle network.",
                                     collective.messages.size(), ranks, 1e3 * collective.seconds));
  drawing.text({left, 18},
               fmt::format("{}: {} messages, {:.4g} ms", title, collective.messages.size(), 1e3 * collective.seconds),
               {.bold = true});
  for (int rank = 0; rank < ranks; ++rank) {
    drawing.text({left - 10, place(0, rank).y}, fmt::format("rank {}", rank), {.anchor = Anchor::end, .muted = true});
    drawing.line(place(0, rank), place(collective.seconds, rank), {.tone = Tone::idle, .width = 1});
  }
  for (const comm::Delivery& message : collective.messages) {
    const Tone tone = tone_of_rank(message.from);
    const Point to = place(message.arrived, message.to);
    drawing.line(place(message.sent, message.from), to, {.tone = tone});
    drawing.box(
        {to.x - dot / 2, to.y - dot / 2, dot, dot},
        {.tone = tone,
         .depth = 1,
         .radius = dot / 2,
         .hint = fmt::format("{} bytes from rank {} to rank {}: sent at {:.4g} ms, arrived at {:.4g} ms", message.bytes,
                             message.from, message.to, 1e3 * message.sent, 1e3 * message.arrived)});
  }
  return drawing.svg(left + width + 30, top + row * ranks);
}

}  // namespace trireme::pictures
