# shellcheck shell=bash
# `./trireme museum`: visits the museum of silent bugs. Sourced by ./trireme. Read next: scripts/museum.py.

museum_usage() {
  cat <<'TXT'
usage: ./trireme museum                                      list the exhibits
       ./trireme museum NAME                                 the page of one, without its answer
       ./trireme museum --exhibit NAME PROGRAM [FLAGS...]    run train_gpt, parity, checkpoint or plot with its bug
       ./trireme museum --answer NAME                        the answer
       ./trireme museum --prove [--record] [NAME...]         check that each exhibit is as its page says (minutes);
                                                             --record: write the figures into the pages

An exhibit is a bug that was reported in another framework. Its page is examples/museum/NAME.md. The programs with the
bugs are built from the last commit, in build-museum, where each bug is shown only when asked for.
TXT
}

museum_programs=(train_gpt parity checkpoint plot)

# Plants the exhibits in build-museum, and compiles what that has changed. Says so on stderr.
build_museum() {
  require_packages build
  command -v python3 >/dev/null || die 64 'museum: python3 is needed, and is not installed'
  python3 scripts/museum.py --plant
  if [ build-museum/build/planted -ot build-museum/build/built ]; then return 0; fi
  quietly 'Configuring build-museum' museum-configure \
    cmake --preset release -S build-museum -B build-museum/build -DTRIREME_CUDA=OFF >&2
  quietly 'Building the programs of the museum' museum-build cmake --build build-museum/build \
    --parallel "$(parallel_jobs)" --target "${museum_programs[@]}" >&2
  touch build-museum/build/built
}

museum() {
  case "${1:-}" in
    -h | --help) museum_usage ;;
    --exhibit)
      [ $# -ge 3 ] || die 64 'museum: --exhibit needs the name of an exhibit and a program; see ./trireme museum --help'
      case " ${museum_programs[*]} " in *" $3 "*) ;;
        *) die 64 "museum: the museum has no program '$3'; expected one of ${museum_programs[*]}" ;;
      esac
      python3 scripts/museum.py --known "$2"
      build_museum
      TRIREME_EXHIBIT=$2 "build-museum/build/bin/$3" "${@:4}"
      ;;
    --prove)
      build "${museum_programs[@]}"
      build_museum
      python3 scripts/museum_proof.py "${@:2}"
      ;;
    *) python3 scripts/museum.py "$@" ;;
  esac
}
