// SPDX-License-Identifier: Apache-2.0
// expect: reshard: a list of shards beside a Holding of your own is given as a listed_holding, made with a table
#include <reshard/model/presets.hpp>
#include <reshard/plan/layout_switch.hpp>
using namespace reshard;

// Of a Holding that is not the library's nobody knows by which names a list speaks of its families.
struct own_holding : computed_holding {
  using computed_holding::computed_holding;
};
const std::vector<shard> gathered;
const space two(models::llama2_7b, config<tp<2>>{});
const own_holding own(two);
#ifdef ACCEPT
const layout_switch change(listed_holding(tensor_table(models::llama2_7b), gathered, 1), own);
#else
const layout_switch change(gathered, own);
#endif
