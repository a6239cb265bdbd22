// Flips random bits in the files of a checkpoint, one at a time, and loads it:
//
//   fault_corruption CHECKPOINT [FLIPS [SEED]]
//
// Loading must refuse each flip (ExitCode::data), or the flip must be harmless: every loaded tensor and text is
// unchanged. `verify` must refuse every flip. Half of the flips hit the manifest, half the files with tensors. Every
// bit is flipped back, so the checkpoint is unchanged at the end. Prints counts; the exit code is 1 if a flip was
// missed.
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include "core/error.h"
#include "core/io.h"
#include "parallel/checkpoint/checkpoint.h"

namespace fs = std::filesystem;
using namespace trireme;

namespace {

struct Content {
  std::map<std::string, std::string> tensors;  // bytes by name, with dtype and shape before them
  std::map<std::string, std::string> run;
  std::int64_t step = 0;
  bool operator==(const Content&) const = default;
};

/// Everything that a run reads from a checkpoint.
Content load(const fs::path& path) {
  checkpoint::Checkpoint saved(path);
  Content content{.tensors = {}, .run = saved.manifest().run, .step = saved.manifest().step};
  for (const std::string& name : saved.names()) {
    const Tensor tensor = saved.read(name);
    std::string& bytes = content.tensors[name];
    bytes = fmt::format("{} {} ", trireme::name(tensor.dtype()), to_string(tensor.shape()));
    bytes.append(static_cast<const char*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()));
  }
  return content;
}

void flip(const fs::path& file, std::uint64_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(bit / 8);
  stream.seekg(at);
  const int byte = stream.get() ^ (1 << (bit % 8));
  stream.seekp(at);
  stream.put(static_cast<char>(byte));
  stream.flush();
  require(stream.good(), "corruption", "{} could not be changed", file.string());
}

/// Whether f throws an Error with ExitCode::data. Prints and rethrows any other Error.
template <class F>
bool refuses(const F& f) {
  try {
    f();
    return false;
  } catch (const Error& error) {
    if (error.code() == ExitCode::data) return true;
    std::printf("exit code %d: %s\n", static_cast<int>(error.code()), error.what());
    throw;
  }
}

int test(const fs::path& path, int flips, std::uint64_t seed) {
  const Content before = load(path);
  std::vector<fs::path> files;
  std::vector<std::uint64_t> sizes;
  for (const std::string& name : list_folder(path)) {
    if (name == checkpoint::manifest_name) continue;
    files.push_back(path / name);
    sizes.push_back(fs::file_size(path / name));
  }
  std::mt19937_64 random(seed);
  std::discrete_distribution<std::size_t> by_size(sizes.begin(), sizes.end());
  int refused = 0, harmless = 0, undetected = 0, unverified = 0;
  for (int i = 0; i < flips; ++i) {
    const fs::path file = i % 2 == 0 ? path / checkpoint::manifest_name : files[by_size(random)];
    const std::uint64_t bit = random() % (8 * fs::file_size(file));
    flip(file, bit);
    Content after;
    if (refuses([&] { after = load(path); })) {
      ++refused;
    } else if (after == before) {
      ++harmless;
    } else {
      ++undetected;
      std::printf("undetected: bit %llu of %s\n", static_cast<unsigned long long>(bit), file.c_str());
    }
    if (!refuses([&] { checkpoint::Checkpoint(path).verify(); })) {
      ++unverified;
      std::printf("not seen by verify: bit %llu of %s\n", static_cast<unsigned long long>(bit), file.c_str());
    }
    flip(file, bit);
  }
  require(load(path) == before, "corruption", "{} is not as it was", path.string());
  std::printf("flips=%d refused=%d harmless=%d undetected=%d not_seen_by_verify=%d\n", flips, refused, harmless,
              undetected, unverified);
  return undetected + unverified > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: fault_corruption CHECKPOINT [FLIPS [SEED]]\n", stderr);
    return 64;
  }
  try {
    return test(argv[1], argc > 2 ? std::stoi(argv[2]) : 2000, argc > 3 ? std::stoull(argv[3]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
