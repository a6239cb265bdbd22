// The limits of control groups, read from invented folders.
#include "core/control_groups.h"

#include <doctest/doctest.h>

#include "core/cores.h"
#include "tests/support/files.h"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

TEST_CASE("control groups: the smallest memory of the group and those above it, in both versions") {
  const TempFolder root;
  const auto limit = [&](std::string_view own) { return control_group_limits(root.path(), own).memory; };
  CHECK_FALSE(limit("0::/\n").has_value());
  fs::create_directories(root / "job" / "step");
  write_plainly(root / "job" / "memory.max", "5000000\n");
  write_plainly(root / "job" / "step" / "memory.max", "max\n");
  CHECK(limit("0::/job/step\n") == 5'000'000U);
  CHECK(limit("0::/job\n") == 5'000'000U);
  CHECK_FALSE(limit("0::/other\n").has_value());
  write_plainly(root / "job" / "step" / "memory.max", "4000\n");
  CHECK(limit("0::/job/step\n") == 4000U);
  // In a container the path may be that outside: the limit is that of the mounted root.
  write_plainly(root / "memory.max", "3000\n");
  CHECK(limit("0::/docker/0123abc\n") == 3000U);
  fs::create_directories(root / "memory" / "job");
  write_plainly(root / "memory" / "job" / "memory.limit_in_bytes", "2000\n");
  CHECK(limit("9:name=systemd:/\n4:cpu,memory:/job\n") == 2000U);
  CHECK_FALSE(limit("3:cpuset:/job\n").has_value());
  CHECK(limit("4:memory:/job\n0::/\n") == 2000U);
  CHECK_FALSE(limit("nonsense\n\n3:\n").has_value());
}

TEST_CASE("control groups: the smallest share of the processors, in both versions") {
  const TempFolder root;
  const auto limit = [&](std::string_view own) { return control_group_limits(root.path(), own).processors; };
  CHECK_FALSE(limit("0::/\n").has_value());
  fs::create_directories(root / "job" / "step");
  write_plainly(root / "job" / "cpu.max", "150000 100000\n");
  write_plainly(root / "job" / "step" / "cpu.max", "max 100000\n");
  CHECK(limit("0::/job/step\n") == 1.5);
  write_plainly(root / "job" / "step" / "cpu.max", "10000 40000\n");
  CHECK(limit("0::/job/step\n") == 0.25);
  CHECK_FALSE(limit("0::/other\n").has_value());
  write_plainly(root / "cpu.max", "400000 100000\n");
  CHECK(limit("0::/docker/0123abc\n") == 4);
  for (const char* folder : {"cpu/job", "cpu"}) {
    fs::create_directories(root / folder);
    write_plainly(root / folder / "cpu.cfs_quota_us", "-1\n");
    write_plainly(root / folder / "cpu.cfs_period_us", "100000\n");
  }
  CHECK_FALSE(limit("4:cpu,cpuacct:/job\n").has_value());
  write_plainly(root / "cpu" / "cpu.cfs_quota_us", "200000\n");
  CHECK(limit("4:cpu,cpuacct:/job\n") == 2);
  CHECK_FALSE(limit("3:cpuset:/job\n2:cpuacct:/job\n").has_value());
  CHECK(limit("3:cpuset:/\n4:cpuacct,cpu:/job\n0::/\n") == 2);
}

TEST_CASE("a quota allows as many busy threads as it has whole processors, and at least one") {
  CHECK(within_quota(8, std::nullopt) == 8);
  CHECK(within_quota(2, 1.0) == 1);
  CHECK(within_quota(8, 3.9) == 3);
  CHECK(within_quota(8, 0.2) == 1);
  CHECK(within_quota(2, 64.0) == 2);
  CHECK(within_quota(2, 1e30) == 2);
}
