// SPDX-License-Identifier: Apache-2.0
// Planning and its figures over any_holding, compiled once for all commands.
#include <reshard/compile_once.hpp>
// What compile_once.hpp asks for:
#include <reshard/cost/compiled_once.hpp>
