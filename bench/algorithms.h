// comm_bench --algorithms and --trace: the algorithms of collectives on artificial links, measured beside what the
// model of the links predicts.
// Read next: parallel/comm/algorithms/algorithm.h, parallel/comm/algorithms/network.h.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::bench {

struct AlgorithmBench {
  int ranks = 8;
  std::int64_t smallest = 1024, largest = 64 << 20;  ///< bytes
  int factor = 8;
  std::string links;  ///< file of --links
  std::string operation = "all_reduce";
  std::string svg;  ///< file for the picture; empty: none
};

/// Prints a table: for each algorithm and size, the predicted and the measured milliseconds; then from which size on
/// another algorithm is the fastest, by both. Ranks are threads.
void bench_algorithms(const AlgorithmBench& options);

/// Draws the messages of one operation of `largest` bytes by this algorithm into the file of `svg`.
void draw_trace(const AlgorithmBench& options, const std::string& algorithm);

}  // namespace trireme::bench
