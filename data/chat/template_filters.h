// The filters, tests and methods of chat templates, with the meaning that Jinja and Python give them.
// Read next: data/chat/template_filters.cpp.
#pragma once

#include <string>
#include <string_view>

#include "data/chat/template_render.h"

namespace trireme::chat {

inline constexpr std::string_view known_filters =
    "abs, capitalize, count, d, default, dictsort, first, float, indent, int, items, join, last, length, list, lower, "
    "map, max, min, reject, rejectattr, replace, reverse, round, safe, select, selectattr, sort, string, title, "
    "tojson, trim, unique, upper";
inline constexpr std::string_view known_tests =
    "boolean, callable, defined, divisibleby, eq, equalto, even, false, float, ge, greaterthan, gt, in, integer, "
    "iterable, le, lessthan, lower, lt, mapping, ne, none, number, odd, sameas, sequence, string, true, undefined, "
    "upper";

/// value | name(arguments)
Value apply_filter(Work& work, const std::string& name, const Value& value, const Arguments& arguments);
/// value is name(arguments)
bool apply_test(Work& work, const std::string& name, const Value& value, const Arguments& arguments);
/// value.name(arguments), if the value has such a method.
bool has_method(const Value& value, std::string_view name);
/// value.name(arguments). Throws if it has no such method.
Value call_method(Work& work, const Value& value, const std::string& name, const Arguments& arguments);

/// a < 0, 0 or > 0, as Python orders numbers, texts and lists of them.
int compare_values(Work& work, const Value& a, const Value& b);
/// Whether `item` is in `container`: a part of a text, an element of a list, a key of a dictionary.
bool is_in(Work& work, const Value& item, const Value& container);
/// What a loop goes over: elements of a list, keys of a dictionary, characters of a text.
List elements(Work& work, const Value& value);

}  // namespace trireme::chat
