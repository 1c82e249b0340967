// SPDX-License-Identifier: Apache-2.0
// What files with RESHARD_COMPILED_ONCE leave out, compiled: one file of a program includes this, and behind it the
// doors that the others include. Each door defines what it declares to them: reshard.hpp planning over any_holding,
// the others the switches over their transports.
// Builds on: nothing of the library.
#pragma once

#ifdef RESHARD_HAS_DOORS
#error "reshard/compile_once.hpp is included before the doors: they define what they find asked for"
#endif
#undef RESHARD_COMPILED_ONCE
#define RESHARD_COMPILES_ONCE
