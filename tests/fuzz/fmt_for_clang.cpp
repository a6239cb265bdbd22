// One template of fmt that clang 14 names otherwise than g++ 12, which the system's library was compiled by: made here,
// as that library makes it.
#include <fmt/format.h>

template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                            fmt::basic_format_args<FMT_BUFFER_CONTEXT(char)>, fmt::detail::locale_ref);
