// The ranks, the clock and the sentences of the labs.
#include <doctest/doctest.h>

#include "core/error.h"
#include "examples/labs/harness/clock.h"
#include "examples/labs/harness/cluster.h"
#include "examples/labs/harness/difference.h"
#include "examples/labs/harness/picture.h"

namespace trireme::labs {
namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) { return error.reason(); }
  return "no error";
}

TEST_CASE("a message takes its latency and its bytes, and a port sends one at a time") {
  const Run run = run_ranks({.ranks = 2}, [](Rank& rank) {
    if (rank.rank() == 0) {
      rank.compute(1, "something");
      for (int i = 0; i < 2; ++i) rank.send(Tensor::zeros({250}), 1);  // 1000 bytes
    } else {
      for (int i = 0; i < 2; ++i) rank.receive(0);
    }
  });
  const Timeline timeline = timed(run, equal_links(0.5, 1000));
  CHECK(timeline.seconds == doctest::Approx(1 + 2 + 0.5));
  CHECK(timeline.computing(0) == doctest::Approx(1));
  CHECK(timeline.exposed(0) == doctest::Approx(2));
  CHECK(timeline.exposed(1) == doctest::Approx(3.5));
}

TEST_CASE("a background task runs beside its rank, from its start on, after the task before") {
  const Run run = run_ranks({.ranks = 2}, [](Rank& rank) {
    int task = 0;
    for (int i = 0; i < 2; ++i) {
      rank.compute(1, "layer");
      task = rank.start([&rank] {
        rank.send(Tensor::zeros({250}), 1 - rank.rank());
        rank.receive(1 - rank.rank());
      });
    }
    rank.compute(1, "layer");
    rank.wait(task);
  });
  // The first task takes 1 to 2.5, the second 2.5 to 4.
  const Timeline timeline = timed(run, equal_links(0.5, 1000));
  CHECK(timeline.seconds == doctest::Approx(4));
  CHECK(timeline.exposed(0) == doctest::Approx(1));
  const std::string text = draw_text(timeline, 8);
  CHECK(text.find("rank 0  |######..|") != std::string::npos);
  CHECK(text.find("  tasks |  >>.>>.|") != std::string::npos);
}

TEST_CASE("a task sends what its tensor holds at its start, and then what it holds at the wait") {
  run_ranks({.ranks = 2}, [](Rank& rank) {
    Tensor x = Tensor::zeros({1});
    float first = -1, second = -1;
    const int task = rank.start([&] {
      rank.send(x, 1 - rank.rank());
      first = rank.receive(1 - rank.rank()).span<const float>()[0];
      rank.send(x, 1 - rank.rank());
      second = rank.receive(1 - rank.rank()).span<const float>()[0];
    });
    rank.start([&] { rank.send(x, 1 - rank.rank()); });
    x.span<float>()[0] = 1;
    rank.wait(task);
    rank.wait(task);
    require(first == 0 && second == 1, "test", "{} and {}", first, second);
  });
}

TEST_CASE("tasks of a rank that fails are ended") {
  CHECK(error_of([] {
          run_ranks({.ranks = 2}, [](Rank& rank) {
            rank.start([&rank] { rank.receive(1 - rank.rank()); });
            require(rank.rank() == 1, "test", "stops");
            rank.receive(0);
          });
        }) == "rank 0: trireme: [test] stops");
}

TEST_CASE("a deadlock is named at once, and so is the rank that fails") {
  CHECK(error_of([] {
          run_ranks({.ranks = 3}, [](Rank& rank) {
            if (rank.rank() > 0) rank.receive(rank.rank() - 1);
          });
        }) ==
        "a deadlock: rank 1 waits for a message of rank 0, rank 2 waits for a message of rank 1, and 1 of 3 ranks "
        "have ended; expected a send for every receive");
  CHECK(error_of([] {
          run_ranks({.ranks = 2}, [](Rank& rank) {
            rank.compute(1, rank.rank() == 0 ? "F0" : "B0");
            rank.receive(1 - rank.rank());
          });
        }) ==
        "a deadlock: rank 0 waits for a message of rank 1 after 'F0', rank 1 waits for a message of rank 0 after 'B0'; "
        "expected a rank to send what another waits for before it waits itself");
  CHECK(error_of([] {
          run_ranks({.ranks = 2}, [](Rank& rank) {
            if (rank.rank() == 1) rank.send(Tensor::zeros({1}), 2);
            rank.receive(1 - rank.rank());
          });
        }).find("rank 1: trireme: [send] rank 1: there is no rank 2") == 0);
  CHECK(error_of([] {
          run_ranks({.ranks = 2}, [](Rank& rank) { rank.all_reduce(Tensor::zeros({1})); });
        }).find("this lab is about what happens inside all_reduce") != std::string::npos);
}

TEST_CASE("messages that nobody received are named") {
  const Run run = run_ranks({.ranks = 2}, [](Rank& rank) {
    if (rank.rank() == 0) rank.send(Tensor::zeros({1}), 1);
  });
  REQUIRE(run.left.size() == 1);
  CHECK(run.left[0] == "rank 0 sent 1 message that rank 1 did not receive");
}

TEST_CASE("a rank that has not waited for its tasks is named") {
  const Run run = run_ranks({.ranks = 2}, [](Rank& rank) {
    const int task = rank.start([&rank] {
      rank.send(Tensor::zeros({1}), 1 - rank.rank());
      rank.receive(1 - rank.rank());
    });
    if (rank.rank() == 0) rank.wait(task);
  });
  REQUIRE(run.left.size() == 1);
  CHECK(run.left[0] == "rank 1 ended without waiting for 1 of its 1 background tasks");
}

TEST_CASE("collectives of the harness") {
  for (const int ranks : {1, 2, 3, 5}) {
    run_ranks({.ranks = ranks, .collectives = true}, [&](Rank& rank) {
      const Tensor ones = Tensor::full({7}, rank.rank() + 1);
      Tensor sum = clone(ones), most = clone(ones), copied = clone(ones);
      rank.all_reduce(sum);
      rank.all_reduce_max(most);
      rank.broadcast(copied, ranks - 1);
      const Tensor gathered = rank.all_gather(ones), exchanged = rank.all_to_all(gathered);
      const Tensor scattered = rank.reduce_scatter(gathered);
      bool right = true;
      for (std::size_t i = 0; i < 7; ++i) {
        right = right && sum.span<const float>()[i] == static_cast<float>(ranks * (ranks + 1) / 2);
        right = right && most.span<const float>()[i] == static_cast<float>(ranks);
        right = right && copied.span<const float>()[i] == static_cast<float>(ranks);
        right = right && scattered.span<const float>()[i] == static_cast<float>(ranks * (rank.rank() + 1));
      }
      for (int r = 0; r < ranks; ++r) {
        right = right && gathered.span<const float>()[static_cast<std::size_t>(7 * r)] == static_cast<float>(r + 1);
        right = right &&
                exchanged.span<const float>()[static_cast<std::size_t>(7 * r)] == static_cast<float>(rank.rank() + 1);
      }
      require(right, "test", "rank {} of {}", rank.rank(), ranks);
    });
  }
}

TEST_CASE("what is wrong with a tensor, in words") {
  const Tensor want = Tensor::from({1, 2, 3, 4});
  CHECK(difference("x", clone(want), want) == "");
  CHECK(difference("x", Tensor::from({1.0005, 2, 3, 4}), want, {.scale = 100}) == "");  // a sum of terms of 100
  CHECK(difference("x", Tensor::from({1.0005, 2, 3, 4}), want) ==
        "x: element 0 of [4] wrong, by up to 0.00012 of the largest; at [0]: 1.0005, expected 1");
  CHECK(difference("x", Tensor(), want) == "x: no tensor; expected [4]");
  CHECK(difference("x", Tensor::zeros({2}), want) == "x: shape [2]; expected [4]");
  CHECK(difference("x", Tensor::from({2, 4, 6, 8}), want) ==
        "x: every element is 2 times what it should be; at [3]: 8, expected 4");
  CHECK(difference("x", Tensor::from({1, 2, 0, 0}), want) ==
        "x: elements 2 to 3 of [4] zero, and should not be; at [3]: 0, expected 4");
  CHECK(difference("x", Tensor::from({1, 2, 7, 9}), want, {.before = Tensor::from({0, 0, 7, 9})}) ==
        "x: elements 2 to 3 of [4] as before, not written; at [3]: 9, expected 4");
  CHECK(difference("x", Tensor::from({1, 5, 3, 4}), want) ==
        "x: element 1 of [4] wrong, by up to 0.75 of the largest; at [1]: 5, expected 2");
}

}  // namespace
}  // namespace trireme::labs
