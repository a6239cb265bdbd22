// The pictures of docs/parallelism.md. Each is drawn by the code that it explains: a real mesh, layer, schedule or
// exchange of tokens. So a picture always agrees with the code. examples/pictures.cpp writes them to a folder.
// Read next: examples/pictures/svg.h, then the file of any picture.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/mesh/mesh.h"

namespace trireme::pictures {

std::string draw_mesh();             ///< eight ranks on dp=2,tp=2,pp=2, and the groups along each axis
std::string draw_tensor_parallel();  ///< an MLP on two tp ranks
std::string draw_sequence_parallel();
std::string draw_zero();            ///< bytes per parameter under ZeRO 0 to 3
std::string draw_ring_attention();  ///< which queries meet which keys, on which rank and in which step
std::string draw_experts();         ///< how tokens reach their experts

struct Picture {
  std::string name;  ///< file name
  std::string svg;
};
/// All pictures of docs/pictures, with the pipeline schedules, in the order of the chapter.
std::vector<Picture> draw_all();

/// Runs `body` on every rank of the mesh `text`, such as "dp=2,tp=2". Ranks are threads.
void run_on_mesh(const std::string& text, const std::function<void(const std::shared_ptr<const DeviceMesh>&)>& body);

}  // namespace trireme::pictures
