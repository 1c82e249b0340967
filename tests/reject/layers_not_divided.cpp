// SPDX-License-Identifier: Apache-2.0
// expect: refuse(<.*>)?\((80, &"|layers, \(\(const char\*\)") layers do not divide by pp="(\[0\], 12|\), pp),
// expect: refuse_even_layers\(
// expect: pp<12>
#include <reshard/model/presets.hpp>
#include <reshard/space/space.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr space s(models::llama2_70b, config<pp<12>, split<pipeline_split::spread>>{});
#else
constexpr space s(models::llama2_70b, config<pp<12>>{});
#endif
