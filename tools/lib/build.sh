# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/check, tools/demo and their like, from the project's root: one place that says how build/ is configured.

# configure FOLDER COMPILER OPTION...: makes the build folder, or sets its options where it exists.
configure() {
  local folder=$1 compiler=$2 log
  shift 2
  log=$(mktemp)
  # shellcheck disable=SC2046
  if ! CXX=$compiler meson setup "$folder" $([ -f "$folder/build.ninja" ] && echo --reconfigure) "$@" >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

# build/, that every command of this project shares: g++, optimised, assertions kept.
configure_default() {
  configure build g++ --buildtype=release -Dtools=enabled "$@"
}
