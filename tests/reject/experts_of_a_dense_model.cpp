// SPDX-License-Identifier: Apache-2.0
// expect: refuse(<.*>)?\((&"ep="\[0\], 8|\(\(const char\*\)"ep="\), ep),
// expect: (&|\(\(const char\*\))" needs a model with experts; this one has none"
// expect: refuse_experts\(
// expect: ep<8>
#include <reshard/model/presets.hpp>
#include <reshard/space/space.hpp>
using namespace reshard;

#ifdef ACCEPT
constexpr space s(models::qwen3_30b_a3b, config<dp<8>, ep<8>>{});
#else
constexpr space s(models::llama2_70b, config<dp<8>, ep<8>>{});
#endif
