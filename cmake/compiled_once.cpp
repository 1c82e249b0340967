// SPDX-License-Identifier: Apache-2.0
// The switches over threads and sockets of a program whose files have RESHARD_COMPILED_ONCE; the build recipes compile it into
// what asks for it.
#include <reshard/compile_once.hpp>
// What compile_once.hpp asks for:
#include <reshard/sockets.hpp>
#include <reshard/testing.hpp>
