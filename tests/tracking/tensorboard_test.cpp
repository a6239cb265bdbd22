// TensorBoard's event files: framing, messages, and what a start, a resume and a rollback leave.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/tracking/tensorboard_records.h"
#include "ops/tracking/tensorboard_sink.h"
#include "tests/support/files.h"
#include "tests/support/text.h"
#include "tests/tracking/event_file.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;
namespace tb = trireme::tensorboard;

namespace tensorboard_test {

/// The event files of a run in the order in which TensorBoard reads them.
std::vector<fs::path> event_files(const fs::path& out) {
  std::vector<fs::path> files;
  for (const std::string& name : list_folder(out / "tensorboard")) files.push_back(out / "tensorboard" / name);
  return files;
}

std::vector<ReadEvent> all_events(const fs::path& out) {
  std::vector<ReadEvent> events;
  for (const fs::path& file : event_files(out))
    for (ReadEvent& event : events_of(content_of(file))) events.push_back(std::move(event));
  return events;
}

/// The points of a curve as TensorBoard shows them: a restart removes earlier points from its step on.
std::vector<std::pair<std::int64_t, float>> curve(const fs::path& out, const std::string& tag) {
  std::vector<std::pair<std::int64_t, float>> points;
  for (const ReadEvent& event : all_events(out)) {
    if (event.restart)
      points.erase(std::remove_if(points.begin(), points.end(), [&](const auto& p) { return p.first >= event.step; }),
                   points.end());
    if (event.scalars.contains(tag)) points.emplace_back(event.step, event.scalars.at(tag));
  }
  return points;
}

StepLogged logged(std::int64_t step, double loss) {
  StepLogged event;
  event.record.step = step;
  event.record.loss = loss;
  return event;
}

RunBegan began(const fs::path& out, std::int64_t first_step) {
  return {.first_step = first_step, .steps = 100, .rate_unit = "tok/s", .out = out.string(), .config = "{\"a\": 1}"};
}

using Points = std::vector<std::pair<std::int64_t, float>>;

}  // namespace tensorboard_test

using namespace tensorboard_test;

TEST_CASE("CRC-32C of the examples in RFC 3720, appendix B.4") {
  CHECK(tb::crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(tb::crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
  CHECK(tb::crc32c("123456789") == 0xE3069283);
  CHECK(tb::crc32c("") == 0);
}

TEST_CASE("records hold what was put into them, and nothing can be changed unnoticed") {
  const tb::Scalars scalars = {{"loss/training", 2.5}, {"x", -1e-30}, {"nan", std::nan("")}, {"large", 1e300}};
  std::string file = tb::version_record(12.25) + tb::scalars_record({13.5, 1'000'000'007}, scalars) +
                     tb::text_record({14, 3}, "sample", "a\nb") + tb::restart_record({15, 4});
  const std::vector<ReadEvent> events = events_of(file);
  REQUIRE(events.size() == 4);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].wall_time == 12.25);
  CHECK(events[1].step == 1'000'000'007);
  CHECK(events[1].scalars.at("loss/training") == 2.5F);
  CHECK(events[1].scalars.at("x") == -1e-30F);
  CHECK(std::isnan(events[1].scalars.at("nan")));
  CHECK(events[1].scalars.at("large") == std::numeric_limits<float>::infinity());
  CHECK(events[2].texts.at("sample") == "a\nb");
  CHECK((events[3].restart && events[3].step == 4));
  for (std::size_t at = 0; at < file.size(); ++at) {
    file[at] = static_cast<char>(file[at] ^ 0x10);
    CHECK_THROWS(events_of(file));
    file[at] = static_cast<char>(file[at] ^ 0x10);
  }
}

TEST_CASE("a text is shown as it is, and is UTF-8") {
  CHECK(tb::verbatim("") == "    ");
  CHECK(tb::verbatim("# a\n\n<b>") == "    # a\n    \n    <b>");
  CHECK(tb::verbatim("\xC3\xA9\xFFz") == "    \xC3\xA9\xEF\xBF\xBDz");
  CHECK(tb::verbatim("\x1b[1m\t\xC2\x9B") == "    ·[1m\t·");
}

TEST_CASE("a run's curves, samples and configuration") {
  const TempFolder folder;
  const fs::path out = folder / "run";
  {
    TensorboardSink sink;
    sink.receive(began(out, 0));
    sink.receive(Validated{.step = 0, .loss = 4, .meaning = ""});
    StepLogged first = logged(10, 3);
    first.record.lr = 0.5;
    first.record.tokens = 1280;
    first.record.peak_bytes = 4096;
    first.evaluated = true;
    sink.receive(first);
    sink.receive(Validated{.step = 10, .loss = 2.75, .meaning = ""});
    sink.receive(Sampled{.step = 10, .text = "once"});
    CHECK(curve(out, "loss/training") == Points{{10, 3}});  // written at once
  }
  CHECK(curve(out, "loss/validation") == Points{{0, 4}, {10, 2.75}});
  CHECK(curve(out, "optimizer/lr") == Points{{10, 0.5}});
  CHECK(curve(out, "progress/tokens") == Points{{10, 1280}});
  CHECK(curve(out, "memory/peak_bytes") == Points{{10, 4096}});
  CHECK(curve(out, "progress/step").empty());
  const std::vector<ReadEvent> events = all_events(out);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[2].texts.at("configuration") == "    {\"a\": 1}");
  CHECK(events.back().texts.at("sample") == "    once");
}

TEST_CASE("steps that are made again replace those of before: after a resume, and after a rollback") {
  const TempFolder folder;
  const fs::path out = folder / "run";
  const auto run = [&](std::int64_t first_step, const std::vector<Event>& events) {
    TensorboardSink sink;
    sink.receive(began(out, first_step));
    for (const Event& event : events) sink.receive(event);
  };
  run(0, {Validated{.step = 0, .loss = 9, .meaning = ""}, logged(1, 8), logged(2, 7), logged(3, 6)});  // saved step 2
  run(2, {Validated{.step = 2, .loss = 5, .meaning = ""}, logged(3, 4), logged(4, 99), RolledBack{3}, logged(4, 3)});
  CHECK(event_files(out).size() == 2);
  CHECK(curve(out, "loss/training") == Points{{1, 8}, {2, 7}, {3, 4}, {4, 3}});
  CHECK(curve(out, "loss/validation") == Points{{0, 9}, {2, 5}});
  run(0, {logged(1, 1)});  // saved nothing: begins anew
  CHECK(event_files(out).size() == 3);
  CHECK(curve(out, "loss/training") == Points{{1, 1}});
  CHECK(curve(out, "loss/validation").empty());
}

TEST_CASE("without a folder nothing is written; a full disk delays records") {
  TensorboardSink nothing;
  nothing.receive(began("", 0));
  nothing.receive(logged(1, 1));
  const TempFolder folder;
  const fs::path out = folder / "run";
  TensorboardSink sink;
  sink.receive(began(out, 0));
  {
    const FileSizeLimit full(fs::file_size(event_files(out).front()) + 10);
    sink.receive(logged(1, 5));
    sink.receive(logged(2, 4));
  }
  CHECK(curve(out, "loss/training").empty());  // and no part of a record
  sink.receive(logged(3, 3));
  CHECK(curve(out, "loss/training") == Points{{1, 5}, {2, 4}, {3, 3}});
}

TEST_CASE("event files that are removed during a run are followed by a new one") {
  const TempFolder folder;
  const fs::path out = folder / "run";
  TensorboardSink sink;
  sink.receive(began(out, 0));
  sink.receive(logged(1, 5));
  fs::remove_all(out / "tensorboard");
  sink.receive(logged(2, 4));
  sink.receive(logged(3, 3));
  REQUIRE(event_files(out).size() == 1);
  CHECK(all_events(out)[0].version == "brain.Event:2");
  CHECK(curve(out, "loss/training") == Points{{2, 4}, {3, 3}});
}

TEST_CASE("a folder that cannot be made does not end the run") {
  const TempFolder folder;
  write_plainly(folder / "run", "a file");
  TensorboardSink sink;
  sink.receive(began(folder / "run", 0));
  sink.receive(logged(1, 5));
  CHECK(content_of(folder / "run") == "a file");
}
