// SPDX-License-Identifier: Apache-2.0
// The main of every test program, compiled once. It lives in a static library, so a program with a main of its own may
// link it too.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
