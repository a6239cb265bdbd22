#include "train/gpt/inference.h"

#include <fmt/format.h>

#include <numeric>
#include <vector>

#include "train/gpt/gpt_setup.h"
#include "train/gpt/validate_gpt.h"
#include "train/program/launcher.h"

namespace trireme {

void declare_ranks(Flags& flags, GptOptions& o, const std::string& axes) {
  flags.add("mesh", "AXES", o.mesh.axes, axes);
  flags.add_choice("ranks", o.mesh.ranks, {"auto", "threads", "mpi"},
                   "what a rank is; auto: mpi processes under a launcher, else threads of this process");
  flags.add_choice("device", o.precision.device, {"cpu", "cuda"}, "where the model runs; cuda: a GPU, or an error");
  flags.add("threads", "N", o.precision.threads, "auto", "per rank; auto: cores / ranks",
            Range{.low = 1, .high = 4096});
}

void resolve_ranks(GptOptions& o, const std::string& flags) {
  o.run.config = flags;
  o.run.out_choice = "none";
  o.mesh.sequence_parallel = false;  // would ask for lengths that tp divides
  resolve(o, launcher_ranks());
}

// A copy has whole groups of ep and whole groups of cp: the fewest dp ranks whose ranks along data ep divides.
int model_copies(const MeshShape& shape) {
  const int ep = shape.size(Axis::ep);
  return shape.size(Axis::dp) * std::gcd(ep, shape.size(Axis::cp)) / ep;
}

ModelCopy model_copy(const std::shared_ptr<ProcessGroup>& world, const MeshShape& shape) {
  ModelCopy copy{.copies = model_copies(shape), .number = 0, .group = world, .shape = shape};
  if (copy.copies == 1) return copy;
  copy.shape.at(Axis::dp) = shape.size(Axis::dp) / copy.copies;
  // World rank = (pp * DATA + data) * TP + tp, and a copy has neighbours along data.
  const int within = copy.shape.size(Axis::data) * copy.shape.size(Axis::tp);
  const auto copy_of = [&](int rank) { return rank / within % copy.copies; };
  copy.number = copy_of(world->rank());
  std::vector<int> members;
  for (int rank = 0; rank < world->size(); ++rank)
    if (copy_of(rank) == copy.number) members.push_back(world->world_rank(rank));
  copy.group = world->subgroup(members, fmt::format("copy {} of the model", copy.number));
  return copy;
}

std::unique_ptr<Gpt> load_on_mesh(Rank& rank, const GptOptions& o, GptSource& source, bool average) {
  return load_on_mesh(rank, o, source, average, {.group = rank.world, .shape = o.mesh.shape});
}

std::unique_ptr<Gpt> load_on_mesh(Rank& rank, GptOptions o, GptSource& source, bool average, const ModelCopy& copy) {
  o.model.config = source.config();
  o.precision.dtype = source.dtype();
  validate(o);
  const auto mesh = std::make_shared<const DeviceMesh>(copy.group, copy.shape);
  copy.copies > 1 ? rank.enter(DeviceMesh(rank.world, o.mesh.shape)) : rank.enter(*mesh);
  o.mesh.shape = copy.shape;
  std::unique_ptr<Gpt> model = make_gpt(o, source.config(), mesh, true);
  average ? source.load_average(*model) : source.load(*model);
  return model;
}

}  // namespace trireme
