// SPDX-License-Identifier: Apache-2.0
// Planning and its figures over any_holding, compiled once for all commands.
#include <reshard/compile_once.hpp>
