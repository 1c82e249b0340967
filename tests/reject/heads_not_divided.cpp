// SPDX-License-Identifier: Apache-2.0
// expect: refuse(<.*>)?\((64, &" "\[0\], &"attention heads"|size, \(\(const char\*\)" "\), what)
// expect: (&|\(\(const char\*\))" do not divide by "(\[0\], &"tp"\[0\], &"="\[0\], 3|\), key, .* degree),
// expect: refuse_indivisible\(.*"attention heads".*"tp"
// expect: tp<3>
#include <reshard/model/presets.hpp>
#include <reshard/space/space.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr space s(models::llama2_70b, config<tp<4>>{});
#else
constexpr space s(models::llama2_70b, config<tp<3>>{});
#endif
