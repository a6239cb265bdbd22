// What `plan` found, as lines for people and as JSON. Read next: examples/plan.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/plan/cluster.h"
#include "ops/plan/operation.h"
#include "ops/plan/search.h"

namespace trireme::plan {

/// What the answers are about.
struct Question {
  Cluster cluster;
  ModelFacts model;
  DType dtype = DType::f32;
  std::int64_t targets = 1;                         ///< tokens of a sample
  std::string target_name = "targets", per_second;  ///< "tokens", "tok/s"
  double train_on = 0;                              ///< targets of the whole training; 0: not asked
  std::string command;                              ///< that trains, but for settings_text(); empty: not asked
};

/// The flags that a search chooses: "--mesh dp=8,tp=2,pp=2 --pipeline 1f1b --micro-batch 2 --zero 1 --recompute full".
std::string settings_text(const TrainOptions& options);

/// The parts of a step, in percent of it: "products 61 %, pp 12 %, ...".
std::string parts_text(const Prediction& prediction);

/// The parts of which `other` has more than `best`, in percent of the step of `best`: "pp +9 %, tp +2 %"; empty: none.
std::string why_slower(const Prediction& best, const Prediction& other);

/// Of the whole training with a choice.
Outlook outlook(const Question& question, const Choice& choice);

/// What was asked, and what was found.
struct Answer {
  Question question;
  Search found;
  std::optional<TrainOptions> would_fit = {};  ///< if nothing fits: settings that do, on more devices if need be
};

std::string to_text(const Answer& answer);  ///< without `would_fit`
std::string would_fit_text(const TrainOptions& options);
std::string to_json(const Answer& answer);

/// One of several answers: for a number of devices, or for a size of an axis.
struct Variant {
  std::string varied;  ///< "devices", "tp"
  int size = 0;
  Answer answer;
};
/// The fastest of each, beside each other.
std::string to_text(const std::vector<Variant>& variants);
/// A list of what to_json() says of each answer, with what varies.
std::string to_json(const std::vector<Variant>& variants);

}  // namespace trireme::plan
