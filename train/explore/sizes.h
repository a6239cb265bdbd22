// How large "tiny" is: the sizes that the explorer gives models, batches and meshes, and the flags that it leaves
// alone. A flag that is not named here is drawn from its declaration alone.
// Read next: train/explore/space.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/explore/case.h"
#include "train/explore/dice.h"

namespace trireme::explore {

/// A mesh of 1 to 24 ranks, with a model and a batch that fit it, most of the time. `train`: with a text to learn.
Arguments draw_sizes(Dice& dice, bool train);
/// A list for --stage-layers that fits --layers, --mesh and --pipeline; nothing when there are fewer layers than
/// stages.
std::optional<std::string> draw_stage_layers(const Arguments& flags, Dice& dice);

/// "dp=2,tp=2" as a map, and back; axes of size 1 are left out.
std::map<std::string, int> parse_axes(const std::string& mesh);
std::string axes_text(const std::map<std::string, int>& axes);
int ranks_of(const Arguments& flags);  ///< of --mesh

/// A text of `kinds` distinct characters, which `--data=text-KINDS` means.
std::string made_up_text(int kinds);
const std::vector<int>& text_kinds();

/// Whether a flag is never drawn: it names a file, or a time, or the kinds of cases set it.
bool is_fixed(const std::string& flag);
/// Whether a case makes no sense without it.
bool is_needed(const std::string& flag);
/// The values to draw from where a declaration says too little about useful ones; null: it says enough.
const std::vector<std::string>* sizes_of(const std::string& flag);

}  // namespace trireme::explore
