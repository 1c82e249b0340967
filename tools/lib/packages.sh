# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/check, tools/demo and .ci/run: Debian packages, installed where they are missing.

# What a build needs, and what tests need beside it.
build_packages="g++ meson ninja-build pkgconf nlohmann-json3-dev libcli11-dev"
test_packages="doctest-dev librange-v3-dev libbenchmark-dev cmake libopenmpi-dev libmpich-dev libdlpack-dev libcurl4-openssl-dev etcd-server iproute2"

apt() {  # runs apt-get without questions, and says something only where it fails
  local log
  log=$(mktemp)
  if ! DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@" >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

missing() {  # the packages among $@ that are not installed, each once
  local package
  for package in $(printf '%s\n' "$@" | sort -u); do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
}

need() {  # need PACKAGE...: installs what is missing, or says what is and fails
  command -v apt-get >/dev/null || return 0  # not Debian's kin: the build itself says what it misses
  local packages
  packages=$(missing "$@")
  [ -n "$packages" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "These packages are missing; as root: apt-get install ${packages% }" >&2
    return 1
  fi
  echo "installing ${packages% }"
  # Lists may be old or absent. Where they cannot be renewed, the ones at hand may still do.
  apt update || echo "the package lists could not be renewed" >&2
  # shellcheck disable=SC2086
  apt install -y --no-install-recommends $packages || {
    echo "apt-get could not install ${packages% }" >&2
    return 1
  }
}

offered() {  # offered PACKAGE: it is installed, or this system's lists have it. Yes where there is no asking: what follows says what is missing
  command -v apt-get >/dev/null || return 0
  [ -z "$(missing "$1")" ] && return 0
  [ "$(id -u)" != 0 ] || apt update || return 0
  has_candidate "$1" || ! has_candidate g++
}

has_candidate() {
  apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'
}

quick_clang() {  # what tools/check compiles with for speed of compiling, one of the clangs that are tried; fails where there is none
  local version
  for version in 14 19; do # 14 before 19, which warns of Debian 12's own headers; a package that only may be there does not do
    if command -v apt-get >/dev/null; then
      [ -z "$(missing "clang-$version")" ] || { offered "clang-$version" && has_candidate "clang-$version"; }
    else
      command -v "clang++-$version" >/dev/null
    fi || continue
    echo "clang++-$version"
    return
  done
  return 1
}
compiler_package() {  # clang++-14 -> clang-14, g++-13 -> g++-13
  case $1 in
    clang++*) echo "clang${1#clang++}" ;;
    *) echo "$1" ;;
  esac
}
