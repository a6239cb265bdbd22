// Checks the layering of the sources. First the checker must find planted violations, then it reads the repository. Run
// from the repository's root, as ctest does.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/layering/rules.h"
#include "tests/layering/source.h"

using layering::check;

namespace {

/// True when `messages` is exactly one message that contains all of `parts`.
bool is_one_with(const std::vector<std::string>& messages, const std::vector<std::string>& parts) {
  if (messages.size() != 1) return false;
  for (const std::string& part : parts)
    if (messages[0].find(part) == std::string::npos) return false;
  return true;
}

}  // namespace

TEST_CASE("checker: a file belongs to the layer of its folder or family of files") {
  CHECK(layering::layer_of("core/cpu/gemm.cpp") == "core");
  CHECK(layering::layer_of("parallel/comm/collective.h") == "parallel/comm");
  CHECK(layering::layer_of("parallel/comm/mpi/group.cpp") == "parallel/comm/mpi");
  CHECK(layering::layer_of("parallel/zero.h") == "parallel/zero");
  CHECK(layering::layer_of("parallel/zero/stage3.cpp") == "parallel/zero");
  CHECK(layering::layer_of("parallel/zeros.h").empty());
  CHECK(layering::layer_of("corelib/x.h").empty());
}

TEST_CASE("checker: an include of a higher layer is reported with file, line and rule") {
  CHECK(is_one_with(check({"core/shape.cpp", "// shapes\n#include <vector>\n#include \"autograd/node.h\"\n"}),
                    {"core/shape.cpp:3", "autograd/node.h", "autograd is not below core"}));
  CHECK(is_one_with(check({"optim/adamw.cpp", "#include \"models/gpt.h\""}), {"optim/adamw.cpp:1"}));
  CHECK(is_one_with(check({"parallel/mesh/mesh.h", "  #  include \"parallel/pipeline/schedule.h\""}),
                    {"parallel/mesh/mesh.h:1"}));
  CHECK(is_one_with(check({"train/loop/run.cpp", "#include \"tests/nn/helpers.h\""}),
                    {"training knows nothing of tests"}));
}

TEST_CASE("checker: a top-level folder includes only those before it in the order of the design") {
  const std::vector<std::string> order = {"core",   "data",      "parallel/checkpoint", "nn",
                                          "models", "train/gpt", "check/parity",        "examples"};
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = 0; j < order.size(); ++j) {
      CAPTURE(order[i]);
      CAPTURE(order[j]);
      const auto messages = check({order[i] + "/a.cpp", "#include \"" + order[j] + "/b.h\""});
      if (j <= i) CHECK(messages.empty());
      if (j > i) CHECK(messages.size() == 1);
    }
  }
  CHECK(is_one_with(check({"parallel/zero/zero.cpp", "#include \"nn/module.h\""}), {"nn is not below parallel/zero"}));
  const std::vector<std::pair<std::string, std::string>> apart = {
      {"data", "cuda"}, {"data", "autograd"}, {"nn", "optim"}, {"parallel/zero", "nn"}};
  for (const auto& [a, b] : apart) {
    CHECK(is_one_with(check({a + "/a.cpp", "#include \"" + b + "/b.h\""}), {b + " is not below " + a}));
    CHECK(is_one_with(check({b + "/a.cpp", "#include \"" + a + "/b.h\""}), {a + " is not below " + b}));
  }
}

TEST_CASE("checker: training knows nothing of what checks it or of what shows it") {
  for (const char* room : {"options", "step", "runs", "loop", "gpt"})
    for (const char* header :
         {"check/faults/injection.h", "check/parity/parity.h", "ops/terminal/eta.h", "ops/run/x.h"})
      CHECK(is_one_with(check({fmt::format("train/{}/a.cpp", room), fmt::format("#include \"{}\"", header)}),
                        {"training knows nothing of"}));
}

TEST_CASE("checker: comm needs only core") {
  CHECK(is_one_with(check({"parallel/comm/threads.cpp", "#include \"autograd/node.h\""}), {"only itself and core"}));
  CHECK(check({"parallel/comm/threads.cpp", "#include \"core/io.h\"\n#include \"parallel/comm/board.h\""}).empty());
}

TEST_CASE("checker: includes of lower layers and within a layer are fine") {
  CHECK(check({"train/loop/run.cpp", "#include \"core/io.h\"\n#include \"data/a.h\"\n#include \"train/loop/run.h\""})
            .empty());
  CHECK(check({"parallel/mesh/mesh.cpp", "#include \"parallel/comm/process_group.h\""}).empty());
  CHECK(check({"nn/attention.cpp", "#include \"parallel/mesh/redistribute.h\""}).empty());
  CHECK(check({"tests/core/x_test.cpp", "#include <mpi.h>\n#include \"train/loop/run.h\"\nint f() { MPI_Init(0, 0); }"})
            .empty());
}

TEST_CASE("checker: how our own files are included") {
  CHECK(is_one_with(check({"nn/linear.cpp", "#include \"linear.h\""}), {"path from the repository's root"}));
  CHECK(is_one_with(check({"tests/nn/linear_test.cpp", "#include \"nm/linear.h\""}),
                    {"path from the repository's root"}));
  CHECK(check({"tests/nn/linear_test.cpp", "#include \"helpers.h\""}).empty());
  CHECK(is_one_with(check({"nn/linear.cpp", "#include <core/tensor.h>"}), {"in quotes"}));
  CHECK(is_one_with(check({"parallel/misc.h", ""}), {"belongs to no layer"}));
}

TEST_CASE("checker: MPI, NCCL, intrinsics and file writes stay in their files") {
  CHECK(is_one_with(check({"train/loop/run.cpp", "int n;\nvoid f() { MPI_Init(0, 0); }"}),
                    {"train/loop/run.cpp:2", "MPI_Init"}));
  CHECK(is_one_with(check({"parallel/comm/threads.cpp", "#include <mpi.h>"}), {"mpi.h"}));
  CHECK(check({"parallel/comm/mpi/group.cpp", "#include <mpi.h>\nint x = MPI_Init(0, 0);"}).empty());
  CHECK(is_one_with(check({"parallel/comm/mpi/group.cpp", "ncclComm_t comm;"}), {"ncclComm_t"}));
  CHECK(is_one_with(check({"nn/norm.cpp", "#include <immintrin.h>"}), {"immintrin.h"}));
  CHECK(is_one_with(check({"autograd/norm.cpp", "auto v = _mm512_set1_ps(1);"}), {"_mm512_set1_ps"}));
  CHECK(check({"core/half.h", "#include <immintrin.h>"}).empty());
  CHECK(is_one_with(check({"data/shards.cpp", "std::ofstream out(path);"}), {"ofstream", "core/io"}));
  CHECK(is_one_with(check({"train/loop/save.cpp", "fs::rename(a, b);"}), {"rename"}));
  CHECK(check({"core/io.cpp", "::rename(a, b);"}).empty());
  CHECK(check({"data/shards.cpp", "#include <fstream>\nint fd = ::open(name, O_RDONLY);\nstd::ifstream in(name);"})
            .empty());
}

TEST_CASE("checker: the results of MPI are looked at") {
  const std::string file = "parallel/comm/mpi/board.cpp";
  for (const char* dropped : {"int n;\nMPI_Barrier(c);", "void f() { MPI_Barrier(c); }",
                              "if (n > 0)\n\n  MPI_Barrier(c);", "f();  // why\n// MPI_Init\nMPI_Barrier(a,\n b);"})
    CHECK(is_one_with(check({file, dropped}), {"drops the result of MPI_Barrier; pass it to check_code()"}));
  for (const char* used : {"check_code(MPI_Barrier(c), where);", "check_code(\n    MPI_Barrier(c), where);",
                           "const int code =\n    MPI_Barrier(c);", "MPI_Comm node = MPI_COMM_NULL;",
                           "static_cast<void>(MPI_Finalize());", "return MPI_Wtime();", "f(x, MPI_Type(y));"})
    CHECK(check({file, used}).empty());
}

TEST_CASE("checker: comments and literals are not code") {
  CHECK(check({"train/loop/a.cpp", "// MPI_Init\n/* #include \"tests/x.h\"\nMPI_Init */ int x;"}).empty());
  CHECK(check({"train/loop/a.cpp", R"(const char* s = "say \"MPI_Init\" // here"; char c = '"';)"}).empty());
  CHECK(check({"train/loop/a.cpp", "auto s = R\"x(MPI_Init \" )\" more)x\";"}).empty());
  CHECK(is_one_with(check({"train/loop/a.cpp", "int n = 1'000; MPI_Init(0); char c = 'x';"}), {"MPI_Init"}));
  CHECK(is_one_with(check({"train/loop/a.cpp", "auto s = R\"(\n\n)\"; int x = MPI_SUM;"}), {"train/loop/a.cpp:3"}));
  CHECK(is_one_with(check({"train/loop/a.cpp", "/* a\n b */ #include \"tests/x.h\"  // why"}), {"train/loop/a.cpp:2"}));
  CHECK(check({"train/loop/a.cpp", "int OMPI_x, xMPI_Init, renamed;"}).empty());
}

TEST_CASE("the repository keeps to its layering") {
  REQUIRE_MESSAGE(std::filesystem::exists("core/tensor.h"), "run this test from the repository's root");
  const auto sources = layering::read_sources(".", layering::source_folders());
  CHECK(sources.size() > 20);
  for (const auto& source : sources)
    for (const std::string& message : check(source)) FAIL_CHECK(message);
  for (const std::string& path : layering::unused_paths(sources))
    FAIL_CHECK("tests/layering/rules.cpp names " << path << ", where no source is; correct the path, or remove it");
}

TEST_CASE("programs to learn from include public headers alone") {
  std::set<std::string> allowed;
  for (const char* list : {"cmake/trireme.h.in", "cmake/train.h.in"}) {
    std::ifstream file(list);
    REQUIRE_MESSAGE(file, "cannot read " << list);
    for (std::string line; std::getline(file, line);)
      if (const std::string name = layering::included_file(line); name.starts_with("trireme/")) allowed.insert(name);
  }
  CHECK(allowed.size() > 40);
  allowed.insert({"trireme/trireme.h", "trireme/train.h", "trireme/version.h"});
  for (const layering::Source& source : layering::read_sources(".", {"examples/models", "examples/external"})) {
    for (const layering::Line& line : layering::code_lines(source.text)) {
      std::string name = layering::included_file(line.code);
      if (!name.starts_with("trireme/")) name = "trireme/" + name;
      const bool ours = std::filesystem::exists(name.substr(name.find('/') + 1));
      if (ours && !name.starts_with("trireme/examples/") && !allowed.contains(name))
        FAIL_CHECK(source.path << ":" << line.number << ": " << name
                               << " is not a public header; use one that cmake/trireme.h.in or cmake/train.h.in names, "
                                  "or add it there");
    }
  }
}

TEST_CASE("checker: a row without sources and a folder that does not exist are errors") {
  CHECK_THROWS(layering::read_sources(".", {"core", "kernels"}));
  const auto unused = layering::unused_paths({{"core/tensor.h", ""}, {"parallel/zero/zero.h", ""}});
  const auto names = [&](const char* path) { return std::find(unused.begin(), unused.end(), path) != unused.end(); };
  CHECK_FALSE(names("core"));
  CHECK_FALSE(names("parallel/zero"));
  CHECK(names("parallel/mesh"));
  CHECK(names("parallel/comm/mpi"));
}
