// The messages of a run, for a test that looks at them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "train/events/event_stream.h"
#include "train/events/texts.h"

namespace trireme::testing {

/// An EventStream that passes every message, and the line of every save, to `tell`.
class Messages : public EventStream {
 public:
  explicit Messages(std::function<void(const std::string&)> tell) { add(std::make_unique<Sink>(std::move(tell))); }

 private:
  class Sink : public EventSink {
   public:
    explicit Sink(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}
    void receive(const Event& event) override {
      std::visit(Match{[this](const Said& said) { tell_(said.text); },
                       [this](const Saved& saved) { tell_(saved_line(saved)); }, [](const auto&) {}},
                 event);
    }

   private:
    std::function<void(const std::string&)> tell_;
  };
};

}  // namespace trireme::testing
