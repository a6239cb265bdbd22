// Instantiates one template of fmt. clang 14 mangles its name in another way than g++ 12, which compiled the system's
// library, so the library's own instantiation would not be found.
#include <fmt/format.h>

template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view,
                                            fmt::basic_format_args<FMT_BUFFER_CONTEXT(char)>, fmt::detail::locale_ref);
