// The sources of the page, which the build puts into the program (cmake/embed.cmake). Read next: ops/view/page/page.html.
#pragma once

#include <string_view>

namespace trireme::run_view {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();  ///< all scripts, one after another

}  // namespace trireme::run_view
