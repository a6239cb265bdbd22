#include "ops/terminal/plain_sinks.h"

#include "data/utf8.h"
#include "train/events/event_json.h"
#include "train/program/text_width.h"

namespace trireme {

void QuietSink::receive(const Event& event) {
  std::visit(Match{[this](const RunBegan& began) { result_.run = began; },
                   [this](const StepLogged& logged) { result_.logged = logged; },
                   [this](const Validated& validated) { result_.validated = validated; },
                   [this](const Saved& saved) {
                     path_ = saved.path;
                     if (!saved.warning.empty()) print(saved_line(saved), Style::warning);
                   },
                   [this](const Said& said) {
                     if (said.level == Said::Level::warning) print(warning_text(said.text), Style::warning);
                   },
                   [this](const RunEnded& ended) {
                     result_.ended = ended;
                     print(quiet_line(result_, path_), Style::plain);
                   },
                   [](const auto&) {}},
             event);
}

void QuietSink::print(const std::string& text, Style style) {
  const int columns = screen_.line_columns();
  screen_.print(columns > 0 ? wrapped_text(safe_text(text), columns) : text, style);
}

void JsonSink::receive(const Event& event) {
  if (const std::string line = to_json_line(event); !line.empty()) screen_.print(line);
}

}  // namespace trireme
