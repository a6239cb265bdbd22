// Failures: one message, one exit code, the place where it happened; and the start of ranks.
#include "train/program/program.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <new>
#include <system_error>

#include "data/utf8.h"
#include "tests/support/errors.h"
#include "train/gpt/gpt_options.h"
#include "train/launch/ranks.h"
#include "train/program/signals.h"
#include "train/validate/memory_limit.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

template <class Call>
std::string fatal_of(Call call) {
  try {
    call();
  } catch (...) { return fatal_message(std::current_exception()); }
  return "nothing";
}

GptOptions options_on(const char* mesh) {
  GptOptions options;
  Flags flags("", "");
  declare_all(flags, options);
  flags.parse({"--mesh", mesh, "--timeout", "1800"});
  resolve(options, 0);
  return options;
}

}  // namespace

TEST_CASE("exit codes") {
  CHECK(run_program([] { return 0; }) == 0);
  CHECK(run_program([] { return 1; }) == 1);
  CHECK(run_program([]() -> int { fail(ExitCode::usage, "test", "the message of a test"); }) == 64);
  CHECK(run_program([]() -> int { fail(ExitCode::numerical, "test", "the message of a test"); }) == 77);
  CHECK(run_program([]() -> int { throw std::runtime_error("the message of a test"); }) == 70);
}

TEST_CASE("the one message of a failure") {
  CHECK(fatal_of([] { fail(ExitCode::usage, "flags", "unknown flag --x"); }) ==
        "trireme: FATAL[64] [flags] unknown flag --x");
  CHECK(fatal_of([] {
          throw PlacedError(Error(ExitCode::retryable, "all_reduce", "lost rank 2"), "rank 5 (dp=0,tp=1,pp=1) step 7");
        }) == "trireme: FATAL[75] rank 5 (dp=0,tp=1,pp=1) step 7: [all_reduce] lost rank 2");
  CHECK(fatal_of([] { throw std::runtime_error("boom"); }) ==
        "trireme: FATAL[70] [internal] boom; this is a bug in Trireme");
  CHECK(contains(fatal_of([] { throw std::bad_alloc(); }), "trireme: FATAL[75] [memory] "));
  const auto system = [](std::errc code) {
    return fatal_of([code] { throw std::system_error(std::make_error_code(code)); });
  };
  CHECK(fatal_of([] {
          throw std::filesystem::filesystem_error("status", "a/b", std::make_error_code(std::errc::filename_too_long));
        }) == "trireme: FATAL[74] [io] cannot look at a/b: File name too long");
  CHECK(contains(system(std::errc::resource_unavailable_try_again), "trireme: FATAL[75] [threads] a thread could not"));
  CHECK(contains(system(std::errc::invalid_argument), "trireme: FATAL[70] [internal] "));
}

TEST_CASE("a message does not repeat the whole of a very long value") {
  const std::string value(120'000, 'A');
  const std::string message = fatal_of([&] { fail(ExitCode::usage, "flags", "--gemm: got {}; change --gemm", value); });
  CHECK(message.size() < 400);
  CHECK(contains(message, "trireme: FATAL[64] [flags] --gemm: got AAAA"));
  CHECK(contains(message, "AAA...(120001 bytes)...AAA"));
  CHECK(contains(message, "; change --gemm"));
  std::string words;
  for (int i = 0; i < 20'000; ++i) words += "word ";
  const std::string long_text = fatal_of([&] { fail(ExitCode::usage, "prompt", "'{}'; change the prompt", words); });
  CHECK(long_text.size() < 4100);
  CHECK(contains(long_text, "...(1000"));
  CHECK(contains(long_text, "'; change the prompt"));
  // A character of several bytes is left out whole.
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\u00e4";
  const std::string cut = fatal_of([&] { fail(ExitCode::usage, "prompt", "{}", umlauts); });
  CHECK(valid_utf8_prefix(cut) == cut.size());
}

TEST_CASE("a rank that runs out of memory is told the estimate") {
  const GptOptions options = options_on("dp=2");
  const auto run_out = [](Rank& rank) {
    if (rank.first()) fail(ExitCode::retryable, "memory", "out of host memory");
  };
  const std::string message =
      fatal_of([&] { run_ranks(options, run_out, {}, memory_clause(options, {.state = 4096, .rest = 10})); });
  CHECK(contains(message, "FATAL[75] "));
  CHECK(contains(message,
                 "[memory] out of host memory; weights, gradients and optimizer state were estimated at 4.0 KiB "));
  CHECK(contains(message, "for the 2 ranks of this process"));
}

TEST_CASE("--collectives makes sums of ranks unless --reduction is exact, and --links alone keeps their order") {
  const auto order = [](TrainOptions options) {
    SumOrder fastest = SumOrder::ranks;
    run_ranks(options, [&](Rank& rank) {
      if (rank.first()) fastest = rank.world->fastest_order();
    });
    return fastest;
  };
  TrainOptions options = options_on("dp=4");
  CHECK(order(options) == SumOrder::ranks);
  options.mesh.links = "tests/parity/two_nodes.json";
  CHECK(order(options) == SumOrder::ranks);
  for (const auto algorithm : {comm::Algorithm::ring, comm::Algorithm::hierarchical}) {
    options.mesh.collectives = algorithm;
    options.mesh.reduction.reset();
    CHECK(order(options) == SumOrder::any);
    options.mesh.reduction = SumOrder::ranks;
    CHECK(order(options) == SumOrder::ranks);
  }
}

TEST_CASE("run_ranks runs every rank once") {
  std::atomic<int> seen{0};
  std::atomic<int> firsts{0};
  run_ranks(options_on("dp=2,pp=2"), [&](Rank& rank) {
    seen += 1 << rank.world->rank();
    firsts += rank.first() ? 1 : 0;
    CHECK(rank.world->size() == 4);
  });
  CHECK(seen == 15);
  CHECK(firsts == 1);
}

TEST_CASE("the failing rank is named, with its step; the others' broken waits are not") {
  const std::string message = fatal_of([] {
    run_ranks(options_on("dp=4"), [&](Rank& rank) {
      rank.where = fmt::format("rank {} (dp={},tp=0,pp=0)", rank.world->rank(), rank.world->rank());
      rank.step = 12;
      if (rank.world->rank() == 2) fail(ExitCode::numerical, "loss", "the loss is nan");
      rank.world->barrier();
    });
  });
  CHECK(message == "trireme: FATAL[77] rank 2 (dp=2,tp=0,pp=0) step 12: [loss] the loss is nan");
}

TEST_CASE("a wrong request has no place; other failures have one even before the first step") {
  CHECK(fatal_of([] { run_ranks(options_on("dp=2"), [](Rank&) { fail(ExitCode::data, "data", "too short"); }); }) ==
        "trireme: FATAL[65] [data] too short");
  CHECK(fatal_of([] {
          run_ranks(options_on("dp=2"), [](Rank& rank) {
            if (rank.world->rank() == 1) throw std::runtime_error("boom");
            rank.world->barrier();
          });
        }) == "trireme: FATAL[70] rank 1: [internal] boom; this is a bug in Trireme");
}

TEST_CASE("the second signal of a kind ends the program as if it were not caught") {
  const auto ended = [](const std::vector<int>& signals, bool forget) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
      catch_signals_of_texts();
      for (const int signal : signals) {
        ::raise(signal);
        if (!leave_asked() || only_interrupted() != (signals[0] == SIGINT && signal == SIGINT)) ::_exit(1);
        if (forget) forget_interrupt();
        if (forget && leave_asked() != (signal == SIGTERM)) ::_exit(2);
      }
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  CHECK(ended({SIGINT}, false) == 0);
  CHECK(ended({SIGINT, SIGTERM}, false) == 0);
  CHECK(ended({SIGINT, SIGINT}, false) == 128 + SIGINT);
  CHECK(ended({SIGTERM, SIGTERM}, false) == 128 + SIGTERM);
  CHECK(ended({SIGINT, SIGINT, SIGINT}, true) == 0);
  CHECK(ended({SIGINT, SIGTERM}, true) == 0);
}
