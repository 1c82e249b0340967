// SPDX-License-Identifier: Apache-2.0
// The one file of a program that compiles its switches: all others are compiled with RESHARD_COMPILED_ONCE, and find
// them declared by the doors. custom_trainer.cpp is built with it, its text as it is.
#include <reshard/compile_once.hpp>
// What compile_once.hpp asks for:
#include <reshard/switching.hpp>
