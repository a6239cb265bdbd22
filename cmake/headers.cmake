# cmake -DFROM=SOURCES -DTO=FOLDER -DLIST=FILE -P cmake/headers.cmake: copies the headers that LIST names, one a line.
# The copies include each other as "trireme/LAYER/NAME.h". A copy whose text is the same keeps its time.
cmake_minimum_required(VERSION 3.22)  # for IN_LIST
file(STRINGS ${LIST} headers)
foreach(header ${headers})
  file(READ ${FROM}/${header} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  foreach(include ${includes})
    string(REGEX REPLACE "#include \"(.*)\"" "\\1" included "${include}")
    if(NOT included IN_LIST headers)
      message(FATAL_ERROR "${header} includes ${included}, which is not among the headers for users; expected one of "
                          "${LIST}; add it to cmake/package.cmake, or leave out both")
    endif()
  endforeach()
  string(REGEX REPLACE "#include \"([^\"]+)\"" "#include \"trireme/\\1\"" text "${text}")
  set(before "")
  if(EXISTS ${TO}/${header})
    file(READ ${TO}/${header} before)
  endif()
  if(NOT before STREQUAL text)
    file(WRITE ${TO}/${header} "${text}")
  endif()
endforeach()

# Headers that no longer exist.
file(GLOB_RECURSE there RELATIVE ${TO} ${TO}/*.h)
list(REMOVE_ITEM there trireme.h train.h version.h ${headers})
list(TRANSFORM there PREPEND ${TO}/)
if(there)
  file(REMOVE ${there})
endif()
