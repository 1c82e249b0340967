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
  local level
  for level in "$@"; do # a level that Meson passed over would cost minutes, and nothing would say so
    [[ $level = -Doptimization=* ]] || continue
    python3 - "$folder" "${level#*=}" <<'END' || return 1
import json, sys
folder, asked = sys.argv[1:]
is_ = next(o["value"] for o in json.load(open(f"{folder}/meson-info/intro-buildoptions.json")) if o["name"] == "optimization")
sys.exit(0 if is_ == asked else f"{folder}/ is configured for -O{is_}, and -O{asked} was asked for")
END
  done
}

# build/, that every command of this project shares: g++, optimised, assertions kept.
configure_default() {
  configure build g++ --buildtype=release -Dtools=enabled "$@"
}
