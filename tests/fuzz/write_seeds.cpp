// Writes the seeds of all targets to FOLDER/TARGET/NAME, for the fuzzer to start from. Usage: fuzz_seeds FOLDER
#include <cstdio>

#include "core/io.h"
#include "tests/fuzz/seeds.h"
#include "tests/fuzz/targets.h"

int main(int argc, char** argv) try {
  using namespace trireme;
  if (argc != 2) fail(ExitCode::usage, "fuzz_seeds", "expected one argument, the folder to write to, got {}", argc - 1);
  for (const fuzz::Target& target : fuzz::targets()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    make_directories(folder);
    for (const fuzz::Seed& seed : fuzz::seeds(target.name)) write_file(folder / seed.name, seed.content);
  }
  return 0;
} catch (const trireme::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
