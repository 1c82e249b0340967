// SPDX-License-Identifier: Apache-2.0
// A door: what tests of a layout, a binding or a back end fill arrays with, and compare them to.
// Builds on: testing/known_values.hpp, transport/forwarding.hpp.
#pragma once

#include <reshard/testing/known_values.hpp>
#include <reshard/transport/forwarding.hpp>
