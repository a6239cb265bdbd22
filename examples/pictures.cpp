// Draws the pictures of docs/parallelism.md into a folder, each as an SVG file:
//
//   build/bin/pictures --out docs/pictures
//
// No model, no data, no dates: the files are always the same. tests/pictures compares them with the committed ones.
// Read next: examples/pictures/pictures.h.
#include "examples/pictures/pictures.h"

#include <cstdio>

#include "core/io.h"
#include "train/options/flags.h"
#include "train/program/program.h"

using namespace trireme;

int main(int argc, char** argv) {
  return run_program([&] {
    std::string out;
    Flags flags("pictures", "Draws the pictures of docs/parallelism.md.");
    flags.group("output");
    flags.add("out", "FOLDER", out, "folder to write the SVG files into; made if it is not there");
    if (!flags.parse_or_print(argc, argv)) return 0;
    if (out.empty()) fail(ExitCode::usage, "--out", "no folder is given; expected one, as in --out docs/pictures");
    make_directories(out);
    for (const pictures::Picture& picture : pictures::draw_all()) {
      write_file(std::filesystem::path(out) / picture.name, picture.svg);
      std::printf("%s/%s\n", out.c_str(), picture.name.c_str());
    }
    return 0;
  });
}
