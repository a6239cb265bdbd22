// Parses a chat template: the part of Jinja 3 that published chat templates use.
//
//   {{ expression }}   {% if/elif/else/endif %}   {% for x in y if z %}..{% else %}..{% endfor %}   {% break %}
//   {% set x = y %}    {% set ns.x = y %}         {% set x %}..{% endset %}      {% continue %}
//   {% macro f(a, b=c) %}..{% endmacro %}         {% generation %}..{% endgeneration %}   {% raw %}   {# comment #}
//
// Not known, and refused: imports, includes, blocks and inheritance, {% call %}, {% filter %}, {% with %}.
// Read next: data/chat/template_tree.h, data/chat/template_render.h.
#pragma once

#include <string_view>

#include "data/chat/template_tree.h"

namespace trireme::chat {

inline constexpr int template_most_depth = 64;  ///< of expressions and of statements within others

/// Throws ExitCode::data, with the line and what was expected.
Block parse_template(std::string_view text, std::string_view path);

}  // namespace trireme::chat
