// SPDX-License-Identifier: Apache-2.0
// Every rule of legality: the sentence that it refuses with, and a neighbour that it accepts.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include <reshard/model/presets.hpp>
#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/legal.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "../oracle/trainer_tensors.hpp"
#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice, testing::refused;

namespace {
const model dense = make_transformer({.name = "dense",
                                      .layers = 10,
                                      .hidden = 16,
                                      .heads = 12,
                                      .groups = 6,
                                      .head_dim = 4,
                                      .ffn = 20,
                                      .vocabulary = 60});
const model moe = make_transformer({.name = "moe",
                                    .layers = 10,
                                    .hidden = 16,
                                    .heads = 12,
                                    .groups = 6,
                                    .head_dim = 4,
                                    .vocabulary = 24,
                                    .experts = 6,
                                    .expert_ffn = 8});
const model one_expert = make_transformer({.name = "one",
                                           .layers = 2,
                                           .hidden = 8,
                                           .heads = 4,
                                           .groups = 4,
                                           .head_dim = 2,
                                           .vocabulary = 8,
                                           .experts = 1,
                                           .expert_ffn = 4});
const model deep = make_transformer(
    {.name = "deep", .layers = 720, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8});
const model grouped = make_transformer({.name = "grouped",
                                        .layers = 3,
                                        .hidden = 8,
                                        .heads = 12,
                                        .groups = 4,
                                        .head_dim = 1,
                                        .ffn = 12,
                                        .vocabulary = 24});
/// A model with one more family of 3 x 5 x 7 elements a tensor, whose columns are cut.
model with_seven_columns(model m, mesh_kind mesh) {
  const bool expert = mesh == mesh_kind::expert;
  m.add({.name = expert ? "odd{expert}" : "odd",
         .extent = {1, expert ? 6 : 1, 3, 5, 7},
         .place = home::last_stage,
         .mesh = mesh,
         .tensor_axis = axis_of::column});
  return m;
}
/// One expert, and a family whose parts are cut: 4 of them, each of `rows` rows (a vector's: columns).
model with_parts(index_t rows, bool is_vector) {
  model m = one_expert;
  m.add({.name = "parts",
         .extent = {1, 1, 4, is_vector ? 1 : rows, is_vector ? rows : 7},
         .place = home::last_stage,
         .tensor_axis = axis_of::part,
         .shape_ndim = is_vector ? 1 : 2});
  return m;
}
/// One expert, and a family of the vocabulary's rows that no dimension knows.
model with_thirty_rows() {
  model m = one_expert;
  m.add({.name = "words",
         .extent = {1, 1, 1, 30, 8},
         .place = home::last_stage,
         .tensor_axis = axis_of::row,
         .padded = padded_as::vocabulary});
  return m;
}
const model odd_dense = with_seven_columns(moe, mesh_kind::dense),
            odd_expert = with_seven_columns(moe, mesh_kind::expert);
}  // namespace

TEST_CASE("every rule refuses with its numbers, and accepts a neighbour") {
  const struct {
    const model& m;
    const char* refused_text;
    const char* sentence;
    const char* accepted_text;
  } cases[] = {
      {dense, "tp=5", "12 attention heads do not divide by tp=5; legal are tp in {1,2,3,4,6,12}", "tp=2"},
      {moe, "tp=9", "12 attention heads do not divide by tp=9; legal are tp in {1,2,3,4,6,12}", "tp=2,dp=2"},
      {dense, "tp=3", "20 rows of the dense layers' fc1 do not divide by tp=3; legal are tp in {1,2,4,5,10,20}",
       "tp=2,dp=3"},
      {dense, "tp=4", "6 query groups and tp=4: one must divide the other", "tp=2,cp=2"},
      {grouped, "tp=6", "4 query groups and tp=6: one must divide the other", "tp=2,cp=3"},
      {grouped, "tp=12", "20 qkv rows do not divide by tp=12; legal are tp in {1,2,4,5,10,20}", "tp=4"},
      {dense, "ep=2,dp=2", "ep=2 needs a model with experts; this one has none", "dp=2"},
      {dense, "etp=1", "etp=1 needs a model with experts; this one has none", "ep=1"},
      {moe, "ep=4,dp=4", "6 experts do not divide by ep=4; legal are ep in {1,2,3,6}", "ep=2,dp=4"},
      {one_expert, "ep=2,dp=2", "1 experts do not divide by ep=2; legal are ep in {1}", "dp=2"},
      {moe, "ep=3,dp=4", "tp x cp x dp = 4 ranks of a stage do not divide by etp=1 x ep=3 = 3", "ep=3,dp=3"},
      {moe, "tp=2,etp=4,cp=3", "tp x cp x dp = 6 ranks of a stage do not divide by etp=4 x ep=1 = 4",
       "tp=2,etp=2,cp=3"},
      {moe, "tp=3", "8 rows of an expert's fc1 do not divide by etp=3; legal are etp in {1,2,4,8}", "tp=3,etp=1"},
      {moe, "etp=3,dp=3", "8 rows of an expert's fc1 do not divide by etp=3; legal are etp in {1,2,4,8}", "etp=2,dp=2"},
      {dense, "vpp=2", "vpp=2 needs pp > 1, and pp=1", "pp=5,vpp=2"},
      {dense, "pp=3", "10 layers do not divide by pp=3; give split=spread or pp in {1,2,5,10}", "pp=3,split=spread"},
      {deep, "pp=7",  // the first 16 of 30 divisors
       "720 layers do not divide by pp=7; give split=spread or pp in {1,2,3,4,5,6,8,9,10,12,15,16,18,20,24,30}",
       "pp=36"},
      {dense, "pp=2,vpp=2", "10 layers do not divide by pp=2 x vpp=2 = 4 chunks; pp x vpp in {1,2,5,10} would do",
       "pp=2,vpp=5"},
      {dense, "pp=5,split=account",
       "split=account: 10 layers and 2 for embedding and loss do not divide by pp=5 x vpp=1; pp x vpp in "
       "{1,2,3,4,6,12} would do",
       "pp=4,split=account"},
      {dense, "pp=5,vpp=2,split=spread", "split=spread needs vpp=1, and vpp=2", "pp=7,split=spread"},
      {dense, "zero=3", "zero=3 is not built with shard=buffers; zero is 0 to 2, and 3 with shard=rows", "zero=2"},
      {dense, "zero=4,shard=rows", "zero=4 is not built with shard=rows; zero is 0 to 3", "zero=3,shard=rows"},
      {dense, "busbw=2", "busbw=2; it is 1, or not named", "busbw=1"},
      {dense, "pad=4611686018427387904,tp=2",
       "pad=4611686018427387904 x tp=2: the padded vocabulary does not fit 64 bits", "pad=1024,tp=2"},
      {dense, "pp=5,dp=2,order=tp-dp",
       "the order leaves out an axis whose degree is not 1: of tp=1 (etp=1), cp=1, ep=1, dp=2 (edp=2), pp=5 it has 2 "
       "axes",
       "pp=5,dp=2,order=tp-dp-pp"},
      {moe, "tp=2,etp=1,cp=9,ep=6,dp=4,pp=5,order=tp-cp-ep",
       "the order leaves out an axis whose degree is not 1: of tp=2 (etp=1), cp=9, ep=6, dp=4 (edp=12), pp=5 it has 3 "
       "axes",
       "tp=2,etp=1,cp=9,ep=6,dp=4,pp=5"},
      {moe, "pp=2,dp=4,ep=2,order=tp-pp-ep-dp",
       "an order whose last axis is not pp gives dense and expert ranks different stages or replicas: pp=2, dp=4, "
       "edp=2; it wants dp = edp and as many ranks before pp in both",
       "pp=2,dp=4,ep=2,order=tp-ep-dp-pp"},
      {dense, "dp=4,instances=3", "instances=3 does not divide the sharding groups of cp x dp = 4 and edp = 4 ranks",
       "dp=4,instances=2"},
      {moe, "dp=6,ep=3,instances=3", "instances=3 does not divide the sharding groups of cp x dp = 6 and edp = 2 ranks",
       "dp=6,ep=3,instances=2"},
      {moe, "dp=2,experts=grouped",
       "experts=grouped with shard=buffers and 6 experts: it says how shard=rows cuts the experts of a model that has "
       "some",
       "dp=2,experts=grouped,shard=rows"},
      {dense, "shard=rows,experts=grouped",
       "experts=grouped with shard=rows and 0 experts: it says how shard=rows cuts the experts of a model that has "
       "some",
       "shard=rows,experts=separate"},
      {one_expert, "experts=grouped",
       "experts=grouped with shard=buffers and 1 experts: it says how shard=rows cuts the experts of a model that has "
       "some",
       "experts=grouped,shard=rows"},
      {moe, "etp=2,dp=2,order=dp",
       "the order leaves out an axis whose degree is not 1: of tp=1 (etp=2), cp=1, ep=1, dp=2 (edp=1), pp=1 it has 1 "
       "axes",
       "etp=2,dp=2,order=dp-tp"},
      {one_expert, "tp=2,cp=2,pp=2,shard=rows,zero=3,order=tp-cp-pp-dp",
       "an order whose last axis is not pp gives dense and expert ranks different stages or replicas: pp=2, dp=1, "
       "edp=2; it wants dp = edp and as many ranks before pp in both",
       "tp=2,cp=2,pp=2,shard=rows,zero=3"},
      {dense, "tp=5,shard=rows", "12 attention heads do not divide by tp=5; legal are tp in {1,2,3,4,6,12}",
       "tp=5,shard=rows,names=hf"},
      {moe, "dp=4,ep=4,shard=rows,names=hf", "6 experts do not divide by ep=4; legal are ep in {1,2,3,6}",
       "dp=4,ep=4,shard=rows,names=hf,experts=grouped"},
      {moe, "dp=4,ep=4,shard=rows,experts=grouped", "6 experts do not divide by ep=4; legal are ep in {1,2,3,6}",
       "dp=4,ep=2,shard=rows,experts=grouped"},
      {models::gpt3_1_3b, "names=hf,shard=rows",
       "names=hf is not built for model gpt3-1.3b: GPT-2's checkpoints store matrices transposed", "shard=rows"},
      {odd_dense, "tp=2,etp=1,pad=8", "'odd' of 3 x 5 x 7 (parts, rows, columns) is not cut into tp=2 equal pieces",
       "etp=2,dp=2,pad=8"},
      {dense, "names=hf", "names=hf needs shard=rows: flat buffers hold Megatron's tensors", "names=hf,shard=rows"},
      {odd_dense, "tp=2,etp=1", "'odd' of 3 x 5 x 7 (parts, rows, columns) is not cut into tp=2 equal pieces",
       "etp=2,dp=2"},
      {odd_expert, "etp=4,dp=4", "'odd{expert}' of 3 x 5 x 7 (parts, rows, columns) is not cut into etp=4 equal pieces",
       "tp=2,etp=1"},
      {dense, "dp=9223372036854775807,pp=2", "9223372036854775807 x 2 does not fit 64 bits", "dp=1000000,pp=2"},
      {dense, "pp=600000000000000000,split=spread", "2400000000000000000 x 4 does not fit 64 bits",
       "pp=500000000000000000,split=spread"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.refused_text));
    CHECK(refused([&] { require_legal(c.m, parse_degrees(c.refused_text)); }) == std::string("reshard: ") + c.sentence);
    CHECK_FALSE(is_legal(c.m, parse_degrees(c.refused_text)));
    CHECK(refused([&] { require_legal(c.m, parse_degrees(c.accepted_text)); }) == "accepted");
    CHECK(is_legal(c.m, parse_degrees(c.accepted_text)));
  }
  // the vocabulary alone: heads divide by 4, 30 rows do not
  const model odd = make_transformer(
      {.name = "odd", .layers = 1, .hidden = 8, .heads = 8, .groups = 8, .head_dim = 4, .ffn = 8, .vocabulary = 30});
  CHECK(refused([&] { require_legal(odd, {.tp = 4}); }) ==
        "reshard: 30 rows of the vocabulary do not divide by tp=4; legal are tp in {1,2,3,5,6,10,15,30}");
  CHECK(refused([&] { require_legal(odd, {.tp = 2}); }) == "accepted");
}

TEST_CASE("parts go to ranks as far as they go, and then what lies in them, each in equal pieces") {
  const auto cut = [](index_t parts, index_t inside, index_t degree, bool is_vector) {
    const family f{.name = "f",
                   .extent = {1, 1, parts, is_vector ? 1 : inside, is_vector ? inside : 49},
                   .tensor_axis = axis_of::part,
                   .shape_ndim = is_vector ? 1 : 2};
    return rules::cut_divides(f, degree);
  };
  for (const bool is_vector : {false, true})
    for (index_t parts = 1; parts <= 6; ++parts)
      for (index_t inside = 1; inside <= 6; ++inside)
        for (index_t degree = 1; degree <= 30; ++degree) {
          bool some = false;  // a number of whole parts, or of a part's rows, that `degree` ranks have each
          for (index_t whole = 1; whole <= parts; ++whole) some = some || whole * degree == parts;
          for (index_t rows = 1; rows <= inside; ++rows)
            some = some || (rows * degree == parts * inside && inside % rows == 0);
          CAPTURE(parts);
          CAPTURE(inside);
          CAPTURE(degree);
          CHECK(cut(parts, inside, degree, is_vector) == some);
        }
  for (int axis : {axis_of::row, axis_of::column, axis_of::expert}) {
    const family f{.name = "f", .extent = {1, 10, 7, 15, 9}, .tensor_axis = axis};
    for (index_t degree = 1; degree <= 15; ++degree)
      CHECK(rules::cut_divides(f, degree) == (f.extent[axis] / degree * degree == f.extent[axis]));
  }
  CHECK(rules::cut_divides({.name = "f", .extent = {1, 1, 7, 7, 7}}, 5));
  CHECK(is_legal(with_parts(6, false), {.tp = 4}));
  CHECK(is_legal(with_parts(5, true), {.tp = 2}));
  CHECK_REFUSED(require_legal(with_parts(5, false), {.tp = 8}), "4 attention heads do not divide by tp=8");
}

TEST_CASE("where the vocabulary is padded its rows need not divide; every family is asked, the first and the last") {
  const model odd = make_transformer(
      {.name = "odd", .layers = 1, .hidden = 8, .heads = 8, .groups = 8, .head_dim = 4, .ffn = 8, .vocabulary = 30});
  CHECK(is_legal(odd, {.tp = 4, .pad = 1}));
  CHECK_FALSE(is_legal(odd, {.tp = 4}));
  CHECK(is_legal(with_thirty_rows(), {.tp = 4, .pad = 1}));
  CHECK_REFUSED(require_legal(with_thirty_rows(), {.tp = 4}),
                "'words' of 1 x 30 x 8 (parts, rows, columns) is not cut into tp=4 equal pieces");
  model first{.name = "first", .shape = {.layers = 1, .hidden = 8, .heads = 2, .vocabulary = 2}};
  first.sets[0] = layer_set::all(1);
  first.add({.name = "odd", .extent = {1, 1, 1, 3, 8}, .tensor_axis = axis_of::row});
  CHECK_REFUSED(require_legal(first, {.tp = 2}), "'odd' of 1 x 3 x 8 (parts, rows, columns)");
  CHECK(is_legal(first, {}));
  model without = odd_dense;
  --without.families;  // what stands behind the last is no part of the model
  CHECK(is_legal(without, {.tp = 2, .etp = 1}));
  model most = one_expert;
  while (most.families < max_families) most.add({.name = "one", .place = home::last_stage});
  CHECK(is_legal(most, {.tp = 2}));
  most.family_at[max_families - 1].tensor_axis = axis_of::row;
  CHECK_REFUSED(require_legal(most, {.tp = 2}), "'one' of 1 x 1 x 1 (parts, rows, columns)");
}

TEST_CASE("one query group, or none, goes to any number of ranks; its rows divide") {
  const auto with = [](index_t head_dim) {
    return make_transformer({.name = "m",
                             .layers = 1,
                             .hidden = 8,
                             .heads = 4,
                             .groups = 1,
                             .head_dim = head_dim,
                             .ffn = 8,
                             .vocabulary = 8});
  };
  CHECK(is_legal(with(2), {.tp = 4}));
  CHECK_REFUSED(require_legal(with(1), {.tp = 4}), "6 qkv rows do not divide by tp=4; legal are tp in {1,2,3,6}");
}

TEST_CASE("which layouts have expert ranks, and are cut by chunk()") {
  for (const shard_by shard : {shard_by::buffers, shard_by::rows})
    for (const names_as names : {names_as::megatron, names_as::hf})
      for (const experts_as experts : {experts_as::separate, experts_as::grouped}) {
        const degrees d{.shard = shard, .experts = experts, .names = names};
        CAPTURE(to_text(d));
        for (const index_t of_model : {0, 1, 2})
          CHECK(rules::has_expert_ranks(d, of_model) == (shard == shard_by::buffers || of_model >= 1));
        const bool by_chunk = to_text(d).find("shard=rows") != std::string::npos && names == names_as::hf;
        CHECK(rules::cuts_by_chunk(d) == by_chunk);
        CHECK(rules::chunks_experts(d) == (by_chunk && experts == experts_as::grouped));
      }
}

TEST_CASE("what leaves 64 bits is not legal, and asking is no refusal: also at compile time") {
  constexpr index_t most = std::numeric_limits<index_t>::max();
  static_assert(is_legal(models::qwen3_30b_a3b, {.dp = 2, .ep = 2}));
  static_assert(!is_legal(models::qwen3_30b_a3b, {.dp = 2, .ep = 2, .etp = most}));
  static_assert(!is_legal(models::llama2_7b, {.pp = 2, .dp = most}));
  static_assert(!is_legal(models::llama2_7b, {.pp = most, .vpp = 2, .split = pipeline_split::spread}));
  static_assert(!is_legal(models::llama2_7b, {.dp = index_t{1} << 31}));  // its square times 4
  const auto says = [](const degrees& d) { return refused([&] { require_legal(models::llama2_7b, d); }); };
  const std::string largest = std::to_string(most);
  CHECK(says({.pp = 2, .dp = most}) == "reshard: " + largest + " x 2 does not fit 64 bits");
  CHECK(says({.dp = index_t{1} << 31}) == "reshard: 4611686018427387904 x 4 does not fit 64 bits");
  CHECK(says({.pp = most, .vpp = 2}) == "reshard: " + largest + " x 2 does not fit 64 bits");
  CHECK(refused([&] {
          require_legal(models::qwen3_30b_a3b, {.dp = 2, .ep = 2, .etp = most});
        }).find("does not fit 64 bits") != std::string::npos);
}

TEST_CASE("every degree is at least its least, also where degrees are made as plain numbers") {
  const struct {
    degrees d;
    const char* sentence;
  } cases[] = {{{.tp = 0}, "tp=0: this degree is at least 1"},
               {{.cp = -1}, "cp=-1: this degree is at least 1"},
               {{.pp = 0}, "pp=0: this degree is at least 1"},
               {{.vpp = 0}, "vpp=0: this degree is at least 1"},
               {{.dp = 0}, "dp=0: this degree is at least 1"},
               {{.ep = 0}, "ep=0: this degree is at least 1"},
               {{.etp = -2}, "etp=-2: this degree is at least 1"},
               {{.bucket = -1}, "bucket=-1: this degree is at least 0"},
               {{.zero = -1}, "zero=-1 is not built with shard=buffers; zero is 0 to 2, and 3 with shard=rows"},
               {{.first = -1}, "first=-1: this degree is at least 1"},
               {{.instances = 0}, "instances=0: this degree is at least 1"},
               {{.pad = -8}, "pad=-8: this degree is at least 1"}};
  for (const auto& c : cases) {
    CHECK(refused([&] { require_legal(moe, c.d); }) == std::string("reshard: ") + c.sentence);
    CHECK_FALSE(is_legal(moe, c.d));
  }
}

TEST_CASE("stages without layers are legal") {
  CHECK(refused([] { require_legal(dense, parse_degrees("pp=12,split=account")); }) == "accepted");
  CHECK(refused([] { require_legal(dense, parse_degrees("pp=64,split=spread")); }) == "accepted");
}

TEST_CASE("rules of expert ranks are no rules of a dense model in rows: DTensor makes no mesh of experts for it") {
  const char* rows = "tp=2,cp=2,pp=2,shard=rows,zero=3,order=tp-cp-pp-dp";  // edp = 4, dp = 1
  CHECK(is_legal(dense, parse_degrees(rows)));
  CHECK(is_legal(dense, parse_degrees("cp=2,shard=rows,zero=3,order=tp-cp-pp")));
  CHECK(refused([&] {
          require_legal(moe, parse_degrees(rows));
        }).find("gives dense and expert ranks different stages") != std::string::npos);
  CHECK(refused([&] {
          require_legal(dense, parse_degrees("tp=2,cp=2,pp=2,zero=1,order=tp-cp-pp-dp"));
        }).find("gives dense and expert ranks different stages") !=
        std::string::npos);  // Megatron's, whatever the model
}

TEST_CASE("legal is what the contract says: random layouts, the oracle's word against ours") {
  oracle::trainer::model o;
  o.layers = 10, o.hidden = 16, o.heads = 12, o.groups = 6, o.head_dim = 4, o.ffn = 20, o.vocab = 60;
  o.moe.assign(10, false);
  oracle::trainer::model with_experts = o;
  with_experts.vocab = 24, with_experts.ffn = 0, with_experts.experts = 6, with_experts.expert_ffn = 8;
  with_experts.moe.assign(10, true);
  dice random;
  int legal = 0, illegal = 0;
  for (int n = 0; n < testing::tries(20000); ++n) {
    const bool experts = random.coin();
    degrees d;
    for (index_t* degree : {&d.tp, &d.cp, &d.pp, &d.vpp, &d.dp, &d.ep, &d.etp})
      if (random.below(3) == 0) *degree = random.within(1, 6);
    d.zero = random.below(3) == 0 ? 3 : random.below(3);
    d.split = static_cast<pipeline_split>(random.below(5));
    if (random.below(4) == 0) {
      d.split = pipeline_split::even;
      d.first = random.below(6), d.last = random.below(6);
    }
    if (random.below(6) == 0) d.instances = random.within(1, 4);
    if (random.below(6) == 0) d.pad = random.within(1, 40);
    if (random.below(3) == 0) d.shard = shard_by::rows;
    if (random.below(8) == 0) d.experts = experts_as::grouped;
    if (random.below(4) == 0) {
      for (int i = 5; i > 1; --i) std::swap(d.order.axis[i - 1], d.order.axis[random.below(i)]);
      if (random.coin()) d.order.axes = 4, d.order.axis[4] = order_axis::tp;
    }
    const std::string text = to_text(d);
    const bool theirs = oracle::trainer::why_illegal(experts ? with_experts : o, text).empty();
    CAPTURE(text);
    CHECK((refused([&] { require_legal(experts ? moe : dense, d); }) == "accepted") == theirs);
    CHECK(is_legal(experts ? moe : dense, d) == theirs);
    ++(theirs ? legal : illegal);
  }
  CHECK_DRAWN(legal > testing::tries(500));
  CHECK_DRAWN(illegal > testing::tries(500));
}

TEST_CASE("the largest numbers that fit 64 bits are legal, and the next are not") {
  const index_t stage = 1'518'500'249;             // the most whose square times 4 fits
  const index_t chunks = 576'460'752'303'423'487;  // the most which times 16 fits
  const struct {
    degrees d;
    bool legal;
  } cases[] = {{{.dp = stage}, true},
               {{.dp = stage + 1}, false},
               {{.cp = 7, .dp = stage / 7}, true},
               {{.cp = 7, .dp = stage / 7 + 1}, false},
               {{.tp = 2, .dp = stage / 2}, true},
               {{.tp = 2, .dp = stage / 2 + 1}, false},
               {{.pp = chunks, .split = pipeline_split::spread}, true},
               {{.pp = chunks + 1, .split = pipeline_split::spread}, false},
               {{.pp = chunks, .dp = 16, .split = pipeline_split::spread}, true},
               {{.pp = chunks, .dp = 17, .split = pipeline_split::spread}, false}};  // ranks of all stages
  for (const auto& c : cases) {
    CAPTURE(to_text(c.d));
    CHECK(is_legal(dense, c.d) == c.legal);
    CHECK((refused([&] { require_legal(dense, c.d); }) == "accepted") == c.legal);
  }
  // of the vocabulary the padded rows, at most pad x tp more, times 16 columns, 16 bytes and 64 families
  const index_t rows = std::numeric_limits<index_t>::max() / (16 * 16 * max_families) - 60;
  for (const index_t tp : {1, 2}) {
    CHECK(is_legal(dense, {.tp = tp, .pad = rows / tp}));
    CHECK_FALSE(is_legal(dense, {.tp = tp, .pad = rows / tp + 1}));
  }
}

TEST_CASE("rows that pad=1 adds are counted as all are: up to one less than a rank has") {
  const index_t ranks = index_t{1} << 20;
  const auto of_rows = [=](index_t vocabulary) {
    return make_transformer({.name = "wide",
                             .layers = 1,
                             .hidden = 1,
                             .heads = ranks,
                             .groups = ranks,
                             .head_dim = 1,
                             .ffn = ranks,
                             .vocabulary = vocabulary});
  };
  const index_t most = (index_t{1} << 53) - 1;  // rows, times 16 bytes and 64 families
  CHECK(is_legal(of_rows(most - ranks), {.tp = ranks, .pad = 1}));
  CHECK_REFUSED(require_legal(of_rows(most - ranks + 1), {.tp = ranks, .pad = 1}),
                "pad=1 x tp=1048576: the padded vocabulary does not fit 64 bits");
  CHECK(is_legal(of_rows((index_t{1} << 53) - ranks), {.tp = ranks}));
}

TEST_CASE("divisors up to 1024 are named, 16 at most") {
  const auto of = [](index_t rows) { return refused([rows] { detail::refuse_indivisible("rows", rows, "tp", 7); }); };
  CHECK(of(1024) == "reshard: 1024 rows do not divide by tp=7; legal are tp in {1,2,4,8,16,32,64,128,256,512,1024}");
  CHECK(of(1025) == "reshard: 1025 rows do not divide by tp=7; legal are tp in {1,5,25,41,205}");
  CHECK(of(5040 * 11) ==
        "reshard: 55440 rows do not divide by tp=7; legal are tp in {1,2,3,4,5,6,7,8,9,10,11,12,14,15,16,18}");
}
