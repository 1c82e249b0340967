// SPDX-License-Identifier: Apache-2.0
// The version of the library, in one place; the build checks that it says the same.
#pragma once

#define RESHARD_VERSION "0.1.0"
