// SPDX-License-Identifier: Apache-2.0
// flags: -fno-exceptions
// expect: reshard: a refusal is an exception
#include <reshard/algebra/interval.hpp>
