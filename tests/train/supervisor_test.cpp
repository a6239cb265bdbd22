// What a supervisor decides and records: which exits are final, pauses, ranks, commands, incidents.
#include <doctest/doctest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/io.h"
#include "ops/supervisor/supervisor.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;
using namespace trireme::supervisor;
namespace fs = std::filesystem;

TEST_CASE("supervisor: which ends are final") {
  const auto of_code = [](int code, bool launched = false) { return classify(Ending::of_exit_code(code), launched); };
  CHECK(of_code(0) == EndKind::done);
  CHECK(of_code(75) == EndKind::retryable);
  for (const int code : {2, 64, 65, 70, 73, 74, 76, 77, 126, 127, 255}) CHECK(of_code(code) == EndKind::final);
  // The signal of a process itself, and as mpirun and shells report it.
  for (const int signal : {SIGKILL, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGTERM, SIGUSR2}) {
    CHECK(classify({.signal = signal}, false) == EndKind::retryable);
    CHECK(of_code(128 + signal) == EndKind::retryable);
    CHECK(of_code(128 + signal, true) == EndKind::retryable);
  }
  CHECK(of_code(130) == EndKind::final);  // a person's Ctrl-C
  CHECK(of_code(1) == EndKind::final);
  CHECK(of_code(1, true) == EndKind::launcher_failed);
}

TEST_CASE("supervisor: what waitpid says") {
  CHECK(Ending::of_wait_status(75 << 8) == Ending{.code = 75});
  CHECK(Ending::of_wait_status(9) == Ending{.signal = 9});
  CHECK(Ending::of_wait_status(137 << 8) == Ending{.signal = 9});
  CHECK(Ending{.signal = 9}.as_exit_code() == 137);
  CHECK(to_string(Ending{.signal = 9}) == "signal 9 (Killed)");
  CHECK(to_string(Ending{.code = 74}) == "exit code 74 (the file system refused)");
  CHECK(to_string(Ending{.code = 3}) == "exit code 3");
  CHECK(to_string(Ending{.code = 75}) == "exit code 75 (starting again helps)");
  CHECK(to_string(Ending{.code = 75}, "out of memory") == "exit code 75 (out of memory)");
}

TEST_CASE("supervisor: restarts without a newer checkpoint are counted, and wait twice as long each") {
  Budget budget({.restarts = 4, .pause = 1, .longest_pause = 3}, 100);
  CHECK(budget.restart(100) == 0.0);
  CHECK(budget.restart(100) == 1.0);
  CHECK(budget.restart(150) == 0.0);  // progress: the count starts over
  CHECK(budget.restart(150) == 1.0);
  CHECK(budget.restart(120) == 2.0);  // an older checkpoint (the newest was damaged) is no progress
  CHECK(budget.restart(150) == 3.0);
  CHECK(budget.without_progress() == 4);
  CHECK_FALSE(budget.restart(150));
  CHECK(budget.restart(151) == 0.0);
  Budget never({.restarts = 0, .pause = 1, .longest_pause = 3}, -1);
  CHECK_FALSE(never.restart(-1));
  CHECK_FALSE(never.restart(0));
}

TEST_CASE("supervisor: a job is told to leave until it is known to listen, and to save once it is") {
  const auto at = [](double seconds) {
    return Requests::Clock::time_point() +
           std::chrono::duration_cast<Requests::Clock::duration>(std::chrono::duration<double>(seconds));
  };
  Requests requests;
  CHECK_FALSE(requests.due(at(0), true));
  requests.leave();
  CHECK(requests.due(at(1), false) == SIGUSR2);
  CHECK_FALSE(requests.due(at(1.5), false));
  CHECK(requests.due(at(2), false) == SIGUSR2);
  CHECK(requests.due(at(2.1), true) == SIGUSR2);  // the last signal may have been lost
  for (const double later : {2.2, 10.0}) CHECK_FALSE(requests.due(at(later), true));

  Requests heard;
  heard.leave();
  CHECK(heard.due(at(0), true) == SIGUSR2);
  CHECK_FALSE(heard.due(at(10), true));

  Requests saving;
  saving.save();
  CHECK_FALSE(saving.due(at(0), false));
  CHECK(saving.due(at(9), true) == SIGUSR1);
  CHECK_FALSE(saving.due(at(10), true));
  saving.save();
  saving.leave();
  CHECK(saving.due(at(11), true) == SIGUSR2);
  CHECK_FALSE(saving.due(at(12), true));  // leaving includes saving
}

TEST_CASE("supervisor: a save that a job was told of and has not made is the next one's") {
  const Requests::Clock::time_point now;
  Requests requests;
  CHECK_FALSE(requests.ended(false));  // no signal was sent
  requests.save();
  CHECK_FALSE(requests.ended(false));  // it ended before a signal was sent: the save is still pending
  CHECK(requests.due(now, true) == SIGUSR1);
  CHECK(requests.ended(false));
  CHECK_FALSE(requests.due(now, false));
  CHECK(requests.due(now, true) == SIGUSR1);
  CHECK_FALSE(requests.due(now, true));
  CHECK_FALSE(requests.ended(true));
  CHECK_FALSE(requests.due(now, true));
  CHECK_FALSE(requests.ended(false));  // nothing is pending
  CHECK_FALSE(requests.due(now, true));

  requests.save();
  CHECK(requests.due(now, true) == SIGUSR1);
  requests.save();                    // a second request; the job saves and ends before it gets the signal
  CHECK_FALSE(requests.ended(true));  // its save was for the first request
  CHECK(requests.due(now, true) == SIGUSR1);
}

TEST_CASE("supervisor: how many ranks a job goes on with") {
  CHECK(ranks_to_start(8, 1, 1, 8) == 8);
  CHECK(ranks_to_start(8, 1, 1, 100) == 8);
  CHECK(ranks_to_start(8, 1, 1, 7) == 4);  // dp 8 -> 4: 7, 6 and 5 need not divide the batch
  CHECK(ranks_to_start(8, 2, 1, 7) == 4);
  CHECK(ranks_to_start(12, 2, 1, 11) == 6);  // dp 6 -> 3
  CHECK(ranks_to_start(12, 2, 1, 5) == 4);   // dp 2
  CHECK(ranks_to_start(8, 4, 1, 3) == 0);    // too few ranks for one model
  CHECK(ranks_to_start(8, 1, 5, 7) == 0);    // 4 would be possible, but is below the minimum
  CHECK(ranks_to_start(8, 1, 4, 7) == 4);
  CHECK(ranks_to_start(8, 8, 1, 8) == 8);
  CHECK(ranks_to_start(4, 1, 1, 0) == 0);
}

TEST_CASE("supervisor: what a world command answers") {
  const SignalQueue signals;
  const double patience = 1800;
  const auto ranks = [&](const std::string& command) { return ask_world(command, signals, patience).ranks; };
  CHECK(ranks("echo 8") == 8);
  CHECK(ranks("echo '  12 nodes'; echo 3") == 12);
  CHECK(ranks("printf 5") == 5);
  CHECK(ranks("grep -c x /dev/null") == 0);  // whose exit code is 1
  CHECK(ranks("sleep 3600 & echo 4") == 4);  // what it leaves behind is not waited for
  CHECK(ranks("yes 2 | head -c 1000000") == 2);
  for (const char* none : {"echo", "true", "echo many", "echo 8x", "echo -1", "echo 99999999999", "echo 8; exit 3",
                           "nosuch_command 2>/dev/null", "kill -9 $$"}) {
    CAPTURE(none);
    const WorldAnswer answer = ask_world(none, signals, patience);
    CHECK_FALSE(answer.ranks.has_value());
    CHECK_FALSE(answer.leave);
    CHECK(answer.problem.starts_with("ended with "));
  }
  CHECK(ask_world("sleep 3600", signals, 0.1).problem == "has not ended within 0.1 s");
  for (const char* endless : {"yes", "echo 8; exec cat /dev/zero"})
    CHECK(ask_world(endless, signals, patience).problem == "has printed more than 1048576 bytes and has not ended");
}

TEST_CASE("supervisor: what a command says") {
  const Command plain = {"build/bin/train_gpt", "--out", "a", "--mesh=dp=2", "--out=b"};
  CHECK(setting(plain, "out") == "b");
  CHECK(setting(plain, "mesh") == "dp=2");
  CHECK_FALSE(setting(plain, "resume"));
  CHECK_FALSE(has_launcher(plain));
  CHECK_FALSE(launcher_ranks(plain));
  CHECK(contains(failure([] {
                   static_cast<void>(setting({"train_gpt", "--out"}, "out"));
                 }),
                 "64 trireme: [run] --out"));

  const Command launched = {"env", "A=1", "/usr/bin/mpirun.openmpi", "-np", "8", "train_gpt", "-n", "3"};
  CHECK(has_launcher(launched));
  CHECK(launcher_ranks(launched) == 8);
  CHECK(with_launcher_ranks(launched, 4)[4] == "4");
  CHECK(to_string(with_exported(launched, "X")) == "env A=1 /usr/bin/mpirun.openmpi -x X -np 8 train_gpt -n 3");
  CHECK(launcher_ranks({"srun", "--ntasks=16", "train_gpt"}) == 16);
  CHECK(with_launcher_ranks({"srun", "--ntasks=16", "train_gpt"}, 8)[1] == "--ntasks=8");
  CHECK(with_exported({"srun", "train_gpt"}, "X").size() == 2);
  CHECK(contains(failure([] { static_cast<void>(launcher_ranks({"mpirun", "-n", "many", "train_gpt"})); }), "'many'"));
  CHECK(to_string(Command{"a b", "it's", "", "c=d"}) == "'a b' 'it'\\''s' '' c=d");

  const TempFolder folder;
  write_file(folder / "c.json", R"({"out": "from_file", "global-batch": 64, "resume": "none"})");
  const Command configured = {"train_gpt", "--config", (folder / "c.json").string()};
  CHECK(setting(configured, "out") == "from_file");
  CHECK(setting(configured, "global-batch") == "64");
  write_file(folder / "d.json", R"({"global-batch": 32})");
  Command twice = configured;
  twice.push_back("--config=" + (folder / "d.json").string());
  CHECK(setting(twice, "out") == "from_file");
  CHECK(setting(twice, "global-batch") == "32");
  bool added = false;
  CHECK(first_command(configured, added).back() == "auto");
  CHECK(added);
}

TEST_CASE("supervisor: the command of the first start and of the next ones") {
  bool added = false;
  CHECK(first_command({"t", "--out", "a"}, added) == Command{"t", "--out", "a", "--resume", "auto"});
  CHECK(added);
  for (const std::string resume : {"auto", "none", "other/run"}) {
    const Command command = {"t", "--resume", resume, "--out", "a"};
    CHECK(first_command(command, added) == command);
    CHECK_FALSE(added);
    CHECK(next_command(command, true) == Command{"t", "--resume", "auto", "--out", "a"});
  }
  CHECK(next_command({"t", "--resume=none"}, false) == Command{"t", "--resume=auto"});
  CHECK(next_command({"t"}, false) == Command{"t", "--resume", "auto"});
  // The run has no checkpoint of its own yet, so it begins from the other one again.
  CHECK(next_command({"t", "--resume", "other/run"}, false) == Command{"t", "--resume", "other/run"});
  CHECK(resumed_path({"t", "--resume", "other/run"}) == "other/run");
  for (const Command& none : {Command{"t"}, Command{"t", "--resume", "auto"}, Command{"t", "--resume=none"}})
    CHECK(resumed_path(none).empty());
}

TEST_CASE("supervisor: fewer ranks need dp=auto, a launcher and a fixed batch") {
  const Command good = {"mpirun", "-n", "8", "t", "--mesh", "dp=auto,tp=2", "--global-batch", "64"};
  CHECK(require_elastic(good).ranks == 8);
  CHECK(require_elastic(good).model_ranks == 2);
  const auto refused = [](const Command& command) {
    return failure([&] { static_cast<void>(require_elastic(command)); });
  };
  CHECK(contains(refused({"t", "--mesh", "dp=auto", "--global-batch", "64"}), "no launcher"));
  CHECK(contains(refused({"mpirun", "-n", "8", "t", "--mesh", "dp=8", "--global-batch", "64"}),
                 "'dp=8' has a fixed number of ranks"));
  CHECK(contains(refused({"mpirun", "-n", "8", "t", "--mesh", "dp=auto"}), "add --global-batch N"));
}

TEST_CASE("supervisor: a command is refused that could not go on") {
  const auto refused = [](const Options& options, const Command& command) {
    return failure([&] { const Supervisor supervisor(options, command); });
  };
  CHECK(contains(refused({}, {"train_gpt"}), "64 trireme: [run] the command has no --out"));
  for (const char* out : {"--out=", "--out=none", "--out=auto"})
    CHECK(contains(refused({}, {"train_gpt", out}), "the command has no --out"));
  CHECK(contains(refused({}, {"mpirun", "t", "--out", "a", ":", "t"}), "several programs"));
  CHECK(
      contains(refused({}, {"train_gpt", "--config", "absent.json"}), "64 trireme: [run] --config absent.json is not"));
  CHECK(contains(refused({.limits = {}, .least_ranks = {}, .world_command = "echo 1"}, {"t", "--out", "a"}),
                 "--world-command without"));
  CHECK(contains(refused({.limits = {}, .least_ranks = 9, .world_command = ""},
                         {"mpirun", "-n", "8", "t", "--mesh", "dp=auto", "--global-batch", "8", "--out", "a"}),
                 "--min-ranks 9 is more than the 8 ranks"));
}

TEST_CASE("supervisor: what a job says about its end") {
  FailureMessage failure;
  failure.add_line("mpirun noticed that process rank 3 with PID 0 on node vm exited on signal 9 (Killed).");
  CHECK(failure.rank() == 3);
  CHECK(failure.message().empty());
  CHECK_FALSE(failure.code());
  failure.add_line("trireme: FATAL[75] rank 5 (dp=0,tp=1,pp=1) step 120: [mpi] no answer");
  CHECK(failure.rank() == 5);
  CHECK(failure.message() == "rank 5 (dp=0,tp=1,pp=1) step 120: [mpi] no answer");
  failure.add_line("mpirun noticed that process rank 0 with PID 0 on node vm exited on signal 9 (Killed).");
  CHECK(failure.rank() == 5);
  CHECK(failure.code() == 75);
  FailureMessage nobody;
  nobody.add_line("trireme: FATAL[64] [flags] unknown flag --ou; did you mean --out");
  CHECK_FALSE(nobody.rank());
  CHECK(nobody.message().starts_with("[flags]"));
  CHECK(nobody.code() == 64);
  nobody.add_line("trireme: FATAL[");
  nobody.add_line("");
}

TEST_CASE("supervisor: why a job is started again, in a few words") {
  const std::string place = "rank 1 (dp=1,tp=0,pp=0) step 15: ";
  const std::vector<std::pair<std::string, std::string>> causes = {
      {"[memory] out of host memory: asked for 8 bytes", "out of memory"},
      {"[memory] out of host memory, asked for by something other than a tensor", "out of memory"},
      {"[pinned memory] the host has no 8 bytes left", "out of memory"},
      {"[error] out of memory (cudaErrorMemoryAllocation), at a.cpp:7", "out of memory"},
      {"[cudaSetDevice] busy (cudaErrorDevicesUnavailable), at a.cpp:7", "a GPU failed"},
      {"[cudnnBackendExecute] it failed", "a GPU failed"},
      {"[replicas] wte.weight differs between rank 0 and rank 1", "a bit changed in memory"},
      {"[shard-hash] wte.weight changed in memory since its last update", "a bit changed in memory"},
      {"[threads] a thread could not be started: no memory", "a thread could not start"},
      {"[threads] another rank has failed", "a rank was lost or late"},
      {"[watch] no sign of life for 3.0 s", "a rank was lost or late"},
      {"[mpi] this rank has failed while the operation was under way", "a rank was lost or late"},
      {"[all_reduce] MPI says: no answer", "MPI failed"},
      {"[ncclAllReduce] NCCL says: unhandled system error", "NCCL failed"},
      {"[nccl] all_reduce: lost; look at the messages of other ranks", "NCCL failed"},
      {"[recv] nothing came", "it failed in recv"},
      {"nothing more is known", "it failed"}};
  for (const auto& [message, cause] : causes) {
    CHECK(cause_of(message) == cause);
    CHECK(cause_of(place + message) == cause);
    CHECK(cause.size() <= 24);  // a column of the table
  }
}

TEST_CASE("supervisor: incidents as lines and as a table") {
  const Time when = std::chrono::system_clock::from_time_t(1'700'000'000);
  Incident killed{.when = when,
                  .restart = 1,
                  .what = "a process was killed",
                  .ending = {.signal = 9},
                  .rank = 2,
                  .message = "say \"why\"",
                  .logged_step = 17,
                  .resumed_step = 10,
                  .ranks = 4,
                  .lost = 3.25};
  const auto json = nlohmann::json::parse(to_json_line(killed));
  CHECK(json == nlohmann::json::parse(R"({"when": "2023-11-14T22:13:20Z", "restart": 1, "what": "a process was killed",
      "signal": 9, "rank": 2, "message": "say \"why\"", "logged_step": 17, "resumed_step": 10, "ranks": 4,
      "seconds_lost": 3.25})"));
  Incident left{.when = when,
                .what = "told to leave",
                .ending = {.code = 75},
                .rank = {},
                .message = "",
                .resumed_step = {},
                .lost = {}};
  const auto second = nlohmann::json::parse(to_json_line(left));
  CHECK(second["exit"] == 75);
  CHECK(second["resumed_step"].is_null());  // it was not started again
  Incident early = left;
  early.resumed_step = -1;
  CHECK(nlohmann::json::parse(to_json_line(early))["resumed_step"] == 0);
  CHECK_FALSE(second.contains("rank"));
  CHECK_FALSE(second.contains("seconds_lost"));
  const std::string table = incident_table({killed, left, early});
  CHECK(contains(table, "exit 75          -              -             -\n"));
  CHECK(contains(table,
                 "2023-11-14T22:13:20Z  a process was killed      signal 9         2             10           3.2"));
  CHECK(contains(table, "the beginning             -\n"));
  CHECK(contains(table, "3 incidents, 3.2 s lost in those that ended\n"));
}

TEST_CASE("supervisor: an incident is written when its lost time is known, or at the end") {
  const TempFolder folder;
  const auto at = [](int seconds) { return Moment(std::chrono::seconds(1000 + seconds)); };
  const auto failed = [&](int clock) {  // may be set forward and back
    return Incident{.when = std::chrono::system_clock::from_time_t(1'700'000'000 + clock),
                    .what = "it failed",
                    .ending = {.code = 75},
                    .rank = {},
                    .message = "",
                    .resumed_step = {},
                    .lost = {}};
  };
  const auto lines = [&] {
    std::vector<nlohmann::json> all;
    std::istringstream text(is_there(folder / "incidents.jsonl") ? read_file(folder / "incidents.jsonl") : "");
    for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  };
  IncidentLog log(folder.path());
  log.set_ranks(2);  // no incident is open
  log.finish();
  CHECK(lines().empty());

  log.add(failed(3600), at(10), at(4));
  log.set_ranks(3);
  log.set_resumed_step(20);
  CHECK(log.open());
  CHECK(lines().empty());
  CHECK(log.close(at(15)) == 11);
  CHECK_FALSE(log.open());
  REQUIRE(lines().size() == 1);
  CHECK(lines()[0]["seconds_lost"] == 11);
  CHECK(lines()[0]["ranks"] == 3);
  CHECK(lines()[0]["resumed_step"] == 20);

  log.add(failed(0), at(30), at(25));
  log.add(failed(-3600), at(40), at(40));  // the job since then made no step
  REQUIRE(lines().size() == 2);
  CHECK(lines()[1]["seconds_lost"] == 15);
  log.finish();
  log.finish();
  REQUIRE(lines().size() == 3);
  CHECK_FALSE(lines()[2].contains("seconds_lost"));
  CHECK(log.all().size() == 3);
}

TEST_CASE("supervisor: the last step that was logged") {
  const TempFolder folder;
  const fs::path file = folder / "metrics.jsonl";
  CHECK(last_logged_step(file) == -1);
  write_file(file, "");
  CHECK(last_logged_step(file) == -1);
  write_file(file, "{\"step\":7,\"loss\":1}\n");
  CHECK(last_logged_step(file) == 7);
  write_file(file, "{\"step\":7,\"loss\":1}\n{\"step\":8,\"loss\":1}\n{\"step\":9,\"lo");
  CHECK(last_logged_step(file) == 8);
  std::string many;
  for (int step = 1; step <= 5000; ++step) many += fmt::format("{{\"step\":{},\"loss\":1}}\n", step);
  write_file(file, many);
  CHECK(last_logged_step(file) == 5000);
}

TEST_CASE("supervisor: what a killed mpirun has left is removed, and nothing else") {
  const TempFolder folder;
  const fs::path temporary = folder / "tmp", memory = folder / "shm";
  const std::string user = std::to_string(::getuid());
  const auto touch = [](const fs::path& path) {
    fs::create_directories(path.parent_path());
    write_file(path, "x");
  };
  const fs::path sessions = temporary / ("ompi.host." + user);
  touch(sessions / "pid.100" / "pmix" / "smlockseg-1688535041");  // 0x64a50001
  touch(sessions / "pid.200" / "pmix" / "smlockseg-1688600577");  // another job: 0x64a60001
  for (const std::string& name :
       {"vader_segment.host." + user + ".64a50001.0", "vader_segment.host." + user + ".64a50001.1",
        std::string("osc_sm.host.64a50001.0.6")})
    touch(memory / name);
  const std::vector<std::string> others = {"vader_segment.host." + user + ".64a60001.0", "osc_sm.host.64a60001.0.6",
                                           "vader_segment.other." + user + ".64a50001.0", "data.bin"};
  for (const std::string& name : others) touch(memory / name);
  CHECK(remove_open_mpi_leftovers({99, 101}, temporary, memory) == 0);
  CHECK(remove_open_mpi_leftovers({99, 100}, temporary, memory) == 4);
  CHECK_FALSE(fs::exists(sessions / "pid.100"));
  CHECK(fs::exists(sessions / "pid.200"));
  CHECK(list_folder(memory).size() == others.size());
  CHECK(remove_open_mpi_leftovers({99, 100}, temporary / "absent", memory) == 0);
}
