// The sizes that the explorer uses for models, batches and meshes, and the flags that it never draws. Values of flags
// that are not named here are drawn from their declaration alone.
// Read next: check/explore/space.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "check/explore/case.h"
#include "check/explore/random_choices.h"

namespace trireme::explore {

/// A mesh of 1 to 24 ranks, with a model and a batch that usually fit it. `train`: also a training text.
Arguments draw_sizes(RandomChoices& random, bool train);
/// A list for --stage-layers that fits --layers, --mesh and --pipeline; nothing if there are fewer layers than stages.
std::optional<std::string> draw_stage_layers(const Arguments& flags, RandomChoices& random);

/// "dp=2,tp=2" as a map, and back; axes of size 1 are omitted.
std::map<std::string, int> parse_axes(const std::string& mesh);
std::string axes_text(const std::map<std::string, int>& axes);
int ranks_of(const Arguments& flags);  ///< of --mesh

/// A text of `kinds` distinct characters, for `--data=text-KINDS`.
std::string made_up_text(int kinds);
const std::vector<int>& text_kinds();

/// True if a flag is never drawn: it names a file or a time, or the kinds of cases set it.
bool is_fixed(const std::string& flag);
/// True if a case needs this flag.
bool is_needed(const std::string& flag);
/// The values to draw from if the declaration does not say which are useful; null: it does.
const std::vector<std::string>* values_to_draw(const std::string& flag);

}  // namespace trireme::explore
