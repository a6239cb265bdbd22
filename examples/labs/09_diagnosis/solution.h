// What the wrong answers of lab 9 take from its solution: all but the function in which they are wrong.
#pragma once

#include "examples/labs/09_diagnosis/lab.h"

namespace trireme::labs::diagnosis::solution {

double step_seconds(int ranks, double compute, double factor, double all_reduce);
double idle_seconds(int ranks, double compute, double factor);
int comparisons(int steps);
double seconds_lost(int flip, int check_every, int save_every, double step, double restart);

double typical_seconds(const Times& times, int rank);
double shortest_round_trip(const Times& times, int a, int b);
Lag find_lag(const Times& times);

const Operation* under_way(const FlightRecord& record, int rank);
int last_begun(const FlightRecord& record, int rank, const std::string& group);
std::vector<int> waits_for(const FlightRecord& record, int rank);
Hang find_hang(const FlightRecord& record);
Loss find_lost(const FlightRecord& record, double timeout);

Flip find_flip(const HashRecord& record);

inline constexpr Answers answers = {find_lag,     waits_for,    find_hang,   find_lost,   find_flip,
                                    step_seconds, idle_seconds, comparisons, seconds_lost};

}  // namespace trireme::labs::diagnosis::solution
