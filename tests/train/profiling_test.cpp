// Profiles: what is recorded, the cost of each call, and the trace and the table made of it.
#include "train/report/profiling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/io.h"
#include "core/kernels.h"
#include "core/profiled_kernels.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/support/text.h"
#include "train/gpt/gpt_options.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Records the calling thread, with timed kernels, until the end of its scope.
struct Recording {
  std::shared_ptr<Profiler> profiler = std::make_shared<Profiler>();

  Recording() {
    profile_kernels(true);
    Profiler::set_current(profiler);
    profiler->start();
  }
  ~Recording() {
    Profiler::set_current(nullptr);
    profile_kernels(false);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::vector<ProfileEvent> events() const {
    profiler->stop();
    return profiler->events();
  }
};

}  // namespace

TEST_CASE("profile: timed kernels compute the same bits") {
  const Tensor a = random({5, 7}, 0, DType::f32, uniform(-0.5, 0.5)),
               b = random({7, 3}, 1, DType::f32, uniform(-0.5, 0.5));
  Tensor plain = Tensor::empty({5, 3}, DType::f32), timed = Tensor::empty({5, 3}, DType::f32);
  kernels(Device::cpu).gemm(a, b, plain, {});
  {
    const Recording recording;
    kernels(Device::cpu).gemm(a, b, timed, {});
    CHECK(recording.events().size() == 1);
  }
  for (std::int64_t i = 0; i < plain.count(); ++i) CHECK(plain.data<float>()[i] == timed.data<float>()[i]);
}

TEST_CASE("profile: the cost of a call is its arithmetic, and each tensor once") {
  const Tensor a = random({2, 5, 7}, 0, DType::f32, uniform(-0.5, 0.5)),
               b = view::expand(random({1, 7, 3}, 1, DType::f32, uniform(-0.5, 0.5)), {2, 7, 3});
  Tensor c = Tensor::zeros({2, 5, 3}, DType::f32);
  const Tensor q = random({1, 4, 2, 8}, 2, DType::f32, uniform(-0.5, 0.5)),
               k = random({1, 4, 1, 8}, 3, DType::f32, uniform(-0.5, 0.5));
  const Recording recording;
  kernels(Device::cpu).gemm(a, b, c, {.beta = 1});
  Tensor out = Tensor::empty({1, 4, 2, 8}, DType::f32), lse = Tensor::empty({1, 2, 4}, DType::f32);
  kernels(Device::cpu).attention(q, k, k, 1, true, {}, out, lse);
  const std::vector<ProfileEvent> events = recording.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "gemm");
  CHECK(events[0].detail == "f32 [2, 5, 7] [2, 7, 3] [2, 5, 3]");
  CHECK(events[0].cost.flops == 2 * 2 * 5 * 3 * 7);
  CHECK(events[0].cost.bytes == 4 * (2 * 5 * 7 + 7 * 3 + 2 * (2 * 5 * 3)));  // b is repeated, c read and written
  CHECK(events[1].cost.flops == 4 * 2 * 8 * (1 + 2 + 3 + 4));                // causal: query i sees i + 1 keys
}

TEST_CASE("profile: scopes nest, threads have lanes, and what begins outside a recording is left out") {
  const Recording recording;
  {
    const ProfileScope outer("module", "outer");
    const ProfileScope inner("module", "inner");
  }
  std::thread([profiler = recording.profiler] {
    Profiler::set_current(profiler, 1);
    const ProfileScope scope("collective", "sum");
  }).join();
  {
    const ProfileScope unfinished("module", "unfinished");
    const std::vector<ProfileEvent> events = recording.events();
    REQUIRE(events.size() == 3);
    CHECK(events[0].name == "inner");
    CHECK(events[1].name == "outer");
    CHECK(events[1].begin <= events[0].begin);
    CHECK(events[1].begin + events[1].seconds >= events[0].begin + events[0].seconds);
    CHECK(events[2].lane == 1);
  }
  CHECK(recording.profiler->events().size() == 3);
  Profiler::set_current(nullptr);
  const ProfileScope nobody([]() -> ProfileEvent { throw std::logic_error("made without being kept"); });
}

TEST_CASE("profile: what happens between stop() and resume() is left out, and its time too") {
  const Recording recording;
  Profiler& profiler = *recording.profiler;
  const auto event = [](const char* name) { const ProfileScope scope("module", name); };
  event("first");
  profiler.stop();
  const double seconds = profiler.seconds();
  event("between");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  profiler.stop();  // once more changes nothing
  CHECK(profiler.seconds() == seconds);
  profiler.resume();
  event("second");
  const std::vector<ProfileEvent> events = recording.events();
  REQUIRE(events.size() == 2);
  CHECK(events[1].name == "second");
  CHECK(events[1].begin >= 0.02);  // a trace shows the gap
  CHECK(profiler.seconds() > seconds);
}

TEST_CASE("profile: steps are recorded without what a run does between them") {
  GptOptions o;
  const TempFolder folder;
  const auto file = folder / "trace.json";
  o.run.profile = file.string();
  const DeviceMesh mesh(self_group(), {});
  Profiling profiling(o, mesh);
  const auto event = [](const char* name) { const ProfileScope scope("module", name); };
  for (std::int64_t made = 0; made < 4; ++made) {
    profiling.before_step(made);
    event("step");
    profiling.after_step();
    event("evaluation");
  }
  const std::optional<std::string> table = profiling.finish();
  REQUIRE(table.has_value());
  CHECK(table->starts_with("2 steps of rank 0"));
  const std::string trace = read_file(file);
  CHECK(trace.starts_with(Profiling::trace_beginning));  // by which a later run knows that it may replace it
  CHECK(trace.find("evaluation") == std::string::npos);
  const nlohmann::json events = nlohmann::json::parse(trace)["traceEvents"];
  CHECK(std::count_if(events.begin(), events.end(), [](const nlohmann::json& e) { return e["name"] == "step"; }) == 2);
}

TEST_CASE("profile: a trace is what Chrome reads") {
  const std::vector<ProfileEvent> events = {
      {.category = "kernel",
       .name = "gemm",
       .detail = "a \"quoted\" one",
       .begin = 0.5,
       .seconds = 0.25,
       .cost = {.flops = 1e9, .bytes = 0}},
      {.category = "collective", .name = "sum", .detail = {}, .lane = 1, .begin = 1, .seconds = 0.5}};
  const auto trace = nlohmann::json::parse("[" + trace_events({3, "rank 3 (dp=1)", "", events}) + "]");
  REQUIRE(trace.size() == 5);  // the process, two threads, two events
  CHECK(trace[0]["args"]["name"] == "rank 3 (dp=1)");
  CHECK(trace[3]["ph"] == "X");
  CHECK(trace[3]["pid"] == 3);
  CHECK(trace[3]["ts"] == 0.5e6);
  CHECK(trace[3]["dur"] == 0.25e6);
  CHECK(trace[3]["args"]["of"] == "a \"quoted\" one");
  CHECK(trace[3]["args"]["GFLOP/s"] == 4.0);
  CHECK(trace[4]["tid"] == 1);
}

TEST_CASE("profile: a trace says what communication moved, and what memory was in use") {
  ProfileEvent sum{.category = "collective", .name = "sum", .detail = {}, .begin = 0.001, .seconds = 0.002};
  sum.transfer = ProfileTransfer{.group = "tp[pp=0,data=1]", .site = "blocks.0.attn", .bytes = 4096, .number = 7};
  ProfileEvent send{.category = "message", .name = "send", .detail = {}, .begin = 0.004, .seconds = 0.001};
  send.transfer = ProfileTransfer{.group = "pp[data=1,tp=0]", .site = "", .bytes = 64, .peer = 5, .tag = 2};
  const RankTrace recorded{3, "rank 3", "h2", {sum, send}, {{.seconds = 0.0015, .bytes = {100, 200}}}};
  const auto trace = nlohmann::json::parse("[" + trace_events(recorded) + "]");
  REQUIRE(trace.size() == 6);  // the process, its host, a thread, two events, a sample
  CHECK(trace[1]["args"]["labels"] == "h2");
  CHECK(trace[3]["args"] ==
        nlohmann::json{{"group", "tp[pp=0,data=1]"}, {"bytes", 4096}, {"site", "blocks.0.attn"}, {"number", 7}});
  CHECK(trace[4]["args"] == nlohmann::json{{"group", "pp[data=1,tp=0]"}, {"bytes", 64}, {"peer", 5}, {"tag", 2}});
  CHECK(trace[5]["ph"] == "C");
  CHECK(trace[5]["ts"] == 1500.0);
  CHECK(trace[5]["args"]["parameters"] == 100);
  CHECK(trace[5]["args"]["gradients"] == 200);
}

TEST_CASE("profile: memory is noted when an event ends, if it has changed") {
  const Recording recording;
  recording.profiler->watch_memory(Device::cpu);
  Tensor kept;
  const auto event = [](const char* name) { const ProfileScope scope("module", name); };
  event("before");
  kept = Tensor::zeros({64, 64}, DType::f32);
  event("after");
  event("again");
  const std::vector<MemorySample> memory = recording.profiler->memory();
  REQUIRE(memory.size() >= 2);
  const auto activations = static_cast<std::size_t>(MemoryCategory::activations);
  CHECK(memory.back().bytes[activations] - memory.front().bytes[activations] == 64 * 64 * 4);
  for (std::size_t i = 1; i < memory.size(); ++i) CHECK(memory[i].bytes != memory[i - 1].bytes);
}

TEST_CASE("profile: steps have the numbers of the run, and the trace says which weights the model has") {
  GptOptions o;
  const TempFolder folder;
  const auto file = folder / "trace.json";
  o.run.profile = file.string();
  o.run.config = "options";
  const DeviceMesh mesh(self_group(), {});
  const auto weight = std::make_shared<Parameter>();
  weight->name = "blocks.0.mlp.up.weight";
  weight->global_shape = {128, 32};
  weight->placements.tp = placement::S(0);
  Profiling profiling(o, mesh);
  profiling.describe({weight}, 40);
  for (std::int64_t made = 0; made < 4; ++made) {
    profiling.before_step(made);
    profiling.after_step();
  }
  CHECK(profiling.finish().has_value());
  const nlohmann::json trace = nlohmann::json::parse(read_file(file));
  CHECK(trace["otherData"]["mesh"] == "dp=1,tp=1,pp=1");
  CHECK(trace["otherData"]["configuration"].get<std::string>().size() == 16);
  const nlohmann::json expected = {
      {"name", "blocks.0.mlp.up.weight"}, {"pp", 0}, {"shape", {128, 32}}, {"tp", "S(0)"}, {"ep", "R"}, {"edp", "R"}};
  CHECK(trace["parameters"][0][0] == expected);
  std::vector<std::string> steps;
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event.value("cat", "") == "step") steps.push_back(event["name"]);
  CHECK(steps == std::vector<std::string>{"step 43", "step 44"});
}

TEST_CASE("profile: a run that ends before the first step to be recorded says so") {
  GptOptions o;
  o.run.profile = "/nonexistent/trace.json";  // nothing may be written
  const DeviceMesh mesh(self_group(), {});
  Profiling profiling(o, mesh);
  profiling.before_step(0);
  profiling.before_step(1);
  const std::optional<std::string> text = profiling.finish();
  REQUIRE(text.has_value());
  CHECK(text->find("nothing was recorded") != std::string::npos);
}

TEST_CASE("profile: the table adds up") {
  const std::vector<ProfileEvent> events = {
      {.category = "module", .name = "all", .detail = {}, .begin = 0, .seconds = 1},
      {.category = "kernel",
       .name = "gemm",
       .detail = "x",
       .begin = 0,
       .seconds = 0.25,
       .cost = {.flops = 1e9, .bytes = 1e8}},
      {.category = "kernel",
       .name = "gemm",
       .detail = "x",
       .begin = 0.25,
       .seconds = 0.25,
       .cost = {.flops = 1e9, .bytes = 1e8}},
      {.category = "collective", .name = "wait", .detail = {}, .begin = 0.5, .seconds = 0.25},
      {.category = "collective", .name = "sum", .detail = {}, .begin = 0.5, .seconds = 0.2}};  // inside the wait
  const std::string table = kernel_table(events, 1.0, 2, MachineSpeed{.flops = 8e9, .bytes = 1e12});
  CHECK(contains(table, "gemm x"));
  // 2 GFLOP in 0.5 s, where 0.25 s would do
  CHECK(contains(table, "2    250.00  50.0%      4.0     0.4          50%"));
  CHECK(contains(table, "   250.00  50.0%\nwaiting for other ranks"));
  CHECK(contains(table, "   125.00  25.0%\neverything else"));
  CHECK(contains(table, "8 GFLOP/s in f32 and copy"));
  std::vector<ProfileEvent> in_bf16 = events;
  for (ProfileEvent& event : in_bf16) event.cost.dtype = DType::bf16;
  const std::string faster =
      kernel_table(in_bf16, 1.0, 2, MachineSpeed{.flops = 8e9, .bytes = 1e12, .bf16_flops = 16e9});
  CHECK(faster.find("2    250.00  50.0%      4.0     0.4          25%") != std::string::npos);
  CHECK(faster.find("8 GFLOP/s in f32, 16 in bf16 and copy") != std::string::npos);
  std::vector<ProfileEvent> long_names = events;
  for (ProfileEvent& event : long_names) event.detail = std::string(80, 'x');
  for (const int columns : {120, 80, 79, 40}) {
    const std::string narrow = kernel_table(long_names, 1.0, 2, MachineSpeed{.flops = 8e9, .bytes = 1e12}, columns);
    std::istringstream lines(narrow.substr(0, narrow.find("roofline: ")));
    for (std::string line; std::getline(lines, line);) CHECK(line.size() <= static_cast<std::size_t>(columns));
    CHECK(contains(narrow, "xxx... "));
  }
  CHECK_FALSE(kernel_table(events, 1.0, 2, std::nullopt).find("roofline") != std::string::npos);
}

TEST_CASE("profile: what a step asks of a device, in one line") {
  CHECK(device_work_line({.launches = 3702, .copies = 24, .allocations = 10, .waits = 3}, 3) ==
        "per step: 1,234 launches, 8 copies, 3.3 allocations on the device; waits for the device: 1");
}
