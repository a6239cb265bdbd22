// Pictures of docs/parallelism.md that are drawn by the code that they explain: the mesh, messages of collectives, and
// the pipeline schedules.
// So they always agree with it. examples/pictures.cpp writes them to a folder; the other pictures there are drawn by
// hand.
// Read next: ops/plot/svg.h, then the file of any picture.
#pragma once

#include <string>
#include <vector>

namespace trireme::pictures {

std::string draw_mesh();  ///< eight ranks on dp=2,tp=2,pp=2, and the groups along each axis

struct Picture {
  std::string name;  ///< file name
  std::string svg;
};
/// All of them, in the order of the chapter.
std::vector<Picture> draw_all();

}  // namespace trireme::pictures
