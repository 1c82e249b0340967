// SPDX-License-Identifier: Apache-2.0
// expect: refuse
// expect: "block: an extent of "
// expect: " cannot be cut into "
// expect: block\(10, -3\)
#include <reshard/algebra/distribution.hpp>
using namespace reshard;

// A refusal in a constant expression shows its words, and who asked with which numbers.
#ifdef ACCEPT
constexpr block cut(10, 3);
#else
constexpr block cut(10, -3);
#endif
