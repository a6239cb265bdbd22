# cmake -DFROM=FOLDER -DOUT=FILE -DSCRIPTS=a.js,b.js -P cmake/embed.cmake: writes a C++ source with the files of a page
# as strings (ops/view/page_sources.h).
string(REPLACE "," ";" scripts "${SCRIPTS}")
set(js "")
foreach(script IN LISTS scripts)
  file(READ ${FROM}/${script} text)
  string(APPEND js "${text}")
endforeach()
file(READ ${FROM}/page.html html)
file(READ ${FROM}/page.css css)
set(code "")
foreach(kind html css js)
  string(APPEND code "static constexpr std::string_view ${kind} = R\"embedded(${${kind}})embedded\";\n"
                     "std::string_view page_${kind}() { return ${kind}; }\n\n")
endforeach()
file(WRITE ${OUT}
  "#include \"ops/view/page_sources.h\"\n\nnamespace trireme::run_view {\n\n${code}}  // namespace trireme::run_view\n")
