# cmake -DSOURCES=FOLDER -DOUT=FILE -P cmake/commit.cmake: writes the source that names the commit, if it has changed.
find_program(git git)
set(commit "")
if(git)
  # Asks for the repository of this folder, not for one above it.
  execute_process(COMMAND ${git} -C ${SOURCES} rev-parse --show-prefix
                  OUTPUT_VARIABLE below RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND below STREQUAL "")
    execute_process(COMMAND ${git} -C ${SOURCES} rev-parse --short=10 HEAD
                    OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${git} -C ${SOURCES} diff --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(commit AND changed)
      string(APPEND commit " with changes")
    endif()
  endif()
endif()
set(text "#include \"train/program/version.h\"\n\nstatic const bool noted = trireme::note_commit(\"${commit}\");\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
