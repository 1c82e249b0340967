// SPDX-License-Identifier: Apache-2.0
// A layout that does not divide, does not cover or does not fit stops the build. Everything here is decided by the
// compiler; the program that is left only shows that the same functions refuse at run time.
#include <cstdio>
#include <string>
#include <type_traits>

#include <reshard/reshard.hpp>

using namespace reshard;

inline constexpr auto& on_64 = space_of<models::llama2_70b, config<tp<4>, pp<8>, dp<2>, zero<1>>>;
inline constexpr auto& on_128 = space_of<models::llama2_70b, config<tp<8>, pp<16>, zero<1>>>;
static_assert(covers(on_64));   // every element is held; any two boxes are equal or disjoint
static_assert(covers(on_128));  // one question each: clang counts the steps of an assertion
// bf16 weights, fp32 master weights, Adam's moments
static_assert(at_most<max_bytes_per_rank(on_128), 80'000'000'000>);
static_assert(at_most<moved_bytes(on_64, on_128), 960'000'000'000>);

// What is legal can be asked too: a configuration that the model does not admit is no constant expression.
template <typename Config>
concept admitted = is_legal(models::llama2_70b, Config{});
static_assert(admitted<config<pp<10>>>);
static_assert(!admitted<config<pp<12>>>);
static_assert(admitted<config<pp<12>, split<pipeline_split::spread>>>);

// Where it is not asked but used, the line
//   inline constexpr auto& wrong = space_of<models::llama2_70b, config<pp<12>>>;
// does not compile, and the compiler says which rule is broken and by which numbers; g++ 12, shortened:
//   error: static assertion failed: reshard: the layers do not divide over pp x vpp; split=spread takes any number,
//   split=account counts two more
//   note: the expression 'layers_split(...) [with Vpp = 1; Pp = 12; Layers = 80; Split = pipeline_split::even]'
//   evaluated to 'false'
// Where degrees are known at run time only, the same rule throws a sentence.
int main() {
  try {
    const space wrong(models::llama2_70b, config{pp{12}});
  } catch (const refusal& r) {
    std::puts(r.what());
    return std::string(r.what()) ==
                   "reshard: 80 layers do not divide by pp=12; give split=spread or pp in {1,2,4,5,8,10,16,20,40,80}"
               ? 0
               : 1;
  }
  return 1;
}
