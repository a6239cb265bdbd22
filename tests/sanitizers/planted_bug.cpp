// One deliberate bug per argument. The tests in this folder fail if a sanitizer build does not report each of them,
// because then the sanitizer is not switched on. Never part of an ordinary build.
#include <cstdio>
#include <limits>
#include <string_view>
#include <thread>
#include <vector>

namespace {

int read_past_the_end(int count) {
  const std::vector<int> values(4, 1);
  return values.data()[count + 3];
}

void leak(int count) {
  static int* volatile kept = nullptr;
  kept = new int[64];
  kept[count] = 1;
  kept = nullptr;
}

int overflow_an_int(int count) { return std::numeric_limits<int>::max() + count; }

int race_on_an_int(int count) {
  int shared = 0;
  std::thread other([&] { shared += count; });
  shared += count;
  other.join();
  return shared;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view bug = argc == 2 ? argv[1] : "";
  int result = 0;
  // argc - 1 is 1, which the compiler cannot know.
  if (bug == "bounds") {
    result = read_past_the_end(argc - 1);
  } else if (bug == "leak") {
    leak(argc - 1);
  } else if (bug == "overflow") {
    result = overflow_an_int(argc - 1);
  } else if (bug == "race") {
    result = race_on_an_int(argc - 1);
  } else {
    std::fprintf(stderr, "usage: planted_bug bounds|leak|overflow|race\n");
    return 64;
  }
  std::printf("%s: nothing was reported (%d)\n", argv[1], result);
  return 0;
}
