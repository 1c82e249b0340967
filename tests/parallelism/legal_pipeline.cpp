// SPDX-License-Identifier: Apache-2.0
// The rules of a pipeline: each sentence beside a neighbour that is accepted, and Megatron's uneven pipelines.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/legal.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/parallelism/pipeline.hpp>

#include "../support/refused.hpp"

using namespace reshard;
using nlohmann::json;
using testing::refused;

namespace {
constexpr transformer ten{
    .name = "ten", .layers = 10, .hidden = 8, .heads = 4, .groups = 4, .head_dim = 2, .ffn = 8, .vocabulary = 8};

model with(index_t layers, index_t predictions = 0, bool tied = false) {
  transformer t = ten;
  t.layers = layers, t.predictions = predictions, t.tied = tied;
  return make_transformer(t);
}
std::string said(const model& m, const char* text) {
  return refused([&] { require_legal(m, parse_degrees(text)); });
}

constexpr bool rules_at_both_times() {
  degrees ends;
  ends.pp = 4, ends.first = 2;
  bool right = rules::stages_between(ends) == 3 && rules::ends_leave_layers(ends, 5) &&
               !rules::ends_leave_layers(ends, 2) && !rules::ends_leave_layers(ends, 6) && rules::dealt_once(ends);
  ends.last = 3;
  right = right && rules::stages_between(ends) == 2 && rules::ends_leave_layers(ends, 7) &&
          !rules::ends_leave_layers(ends, 5) && !rules::ends_leave_layers(ends, 4) &&
          rules::ends_divide_by_chunks(ends, 7);
  ends.split = pipeline_split::spread;
  right = right && !rules::dealt_once(ends);
  ends.vpp = 2;
  right = right && !rules::ends_divide_by_chunks(ends, 9);
  ends.first = 2, ends.last = 4;
  right = right && rules::ends_divide_by_chunks(ends, 10) && !rules::ends_divide_by_chunks(ends, 8);
  degrees one;  // one stage is the first or the last, and has all layers
  one.vpp = 2, one.last = 4;
  right = right && rules::ends_divide_by_chunks(one, 4);
  one.last = 0, one.first = 4;
  right = right && rules::ends_divide_by_chunks(one, 4);
  one.first = 3;
  right = right && !rules::ends_divide_by_chunks(one, 3);
  return right && rules::counted_as_layers(pipeline_split::account) == 2 &&
         rules::counted_as_layers(pipeline_split::account_loss) == 1 &&
         rules::counted_as_layers(pipeline_split::account_embedding) == 1 &&
         rules::counted_as_layers(pipeline_split::spread) == 0;
}
static_assert(rules_at_both_times());
}  // namespace

TEST_CASE("the rules at run time") { CHECK(rules_at_both_times()); }

TEST_CASE("every rule refuses with its numbers, and accepts a neighbour") {
  const struct {
    model m;
    const char* refused_text;
    const char* sentence;
    const char* accepted_text;
  } cases[] = {
      {with(10), "pp=4,split=account_embedding",
       "split=account_embedding: 10 layers and 1 for the embedding do not divide by pp=4 x vpp=1; pp x vpp in {1,11} "
       "would do",
       "pp=11,split=account_embedding"},
      {with(10), "pp=4,split=account_loss",
       "split=account_loss: 10 layers and 1 for the loss do not divide by pp=4 x vpp=1; pp x vpp in {1,11} would do",
       "pp=11,split=account_loss"},
      {with(10), "pp=3,first=2,split=account",
       "of split, first or last, and string one says how layers are dealt; given are split first", "pp=3,first=2"},
      {with(10), "pp=3,last=2,split=spread",
       "of split, first or last, and string one says how layers are dealt; given are split last", "pp=3,last=2"},
      {with(2), "pp=2,first=1,string=Et|tL",
       "of split, first or last, and string one says how layers are dealt; given are first string",
       "pp=2,string=Et|tL"},
      {with(10), "pp=3,last=1,split=spread",
       "of split, first or last, and string one says how layers are dealt; given are split last", "pp=4,last=1"},
      {with(10), "first=9",
       "first + last = 10 would do: with pp=1 no stage is left for more layers, and first=9, last=0 (0: not given) "
       "take 9 of 10",
       "first=10"},
      {with(9), "pp=3,vpp=2,first=3,last=4",
       "first=3, last=4 (0: not given) with pp=3 and vpp=2: every stage's layers divide by vpp, and pp is above 2 "
       "where both ends are given",
       "pp=3,first=3,last=4"},
      {with(7), "pp=3,vpp=2,first=2,last=2",
       "first=2, last=2 (0: not given) with pp=3 and vpp=2: every stage's layers divide by vpp, and pp is above 2 "
       "where both ends are given",
       "pp=3,first=2,last=2"},
      {with(10), "pp=3,vpp=2", "10 layers do not divide by pp=3 x vpp=2 = 6 chunks; pp x vpp in {1,2,5,10} would do",
       "pp=5,vpp=2"},
      {with(2, 1), "pp=3,string=Et|tm||||L",
       "the layout string has its m in chunk 1, which is not the last of a stage; those are chunks 3 to 5",
       "pp=3,string=Et|t||m||L"},
      {with(10), "pp=4,first=2,last=3",
       "first + last = 10 - n x 2, n at least 1, would do: first=2, last=3 (0: not given) leave 5 of 10 layers to 2 "
       "stages between, which take as many each",
       "pp=4,first=2,last=4"},
      {with(10), "pp=4,first=5,last=5",
       "first + last = 10 - n x 2, n at least 1, would do: first=5, last=5 (0: not given) leave 0 of 10 layers to 2 "
       "stages between, which take as many each",
       "pp=2,first=5,last=5"},
      {with(10), "pp=3,first=5,last=5",
       "first + last = 10 - n x 1, n at least 1, would do: first=5, last=5 (0: not given) leave 0 of 10 layers to 1 "
       "stage between",
       "pp=3,first=5,last=4"},
      {with(20), "last=1",
       "first + last = 20 would do: with pp=1 no stage is left for more layers, and first=0, last=1 (0: not given) "
       "take "
       "1 of 20",
       "last=20"},
      {with(10), "first=4,last=6", "pp=2 or more would do: first=4 and last=6 are two stages, and pp=1 is one",
       "pp=2,first=4,last=6"},
      {with(12), "pp=3,vpp=2,first=2,last=5",
       "first=2, last=5 (0: not given) with pp=3 and vpp=2: every stage's layers divide by vpp, and pp is above 2 "
       "where both ends are given",
       "pp=3,vpp=2,first=2,last=6"},
      {with(10), "pp=2,vpp=2,first=4,last=6",
       "first=4, last=6 (0: not given) with pp=2 and vpp=2: every stage's layers divide by vpp, and pp is above 2 "
       "where both ends are given",
       "pp=2,vpp=2,first=4"},
      {with(20), "pp=2,first=4,last=7",
       "first + last = 20 would do: with pp=2 no stage is left for more layers, and first=4, last=7 (0: not given) "
       "take 11 of 20",
       "pp=2,first=13,last=7"},
      {with(3), "pp=4,vpp=2,string=Et|t|tL", "the layout string has 3 chunks, and pp=4 x vpp=2 = 8",
       "pp=3,string=Et|t|tL"},
      {with(3), "pp=2,vpp=2,string=Et|t|tL", "the layout string has 3 chunks, and pp=2 x vpp=2 = 4",
       "pp=2,vpp=2,string=Et|t|t|L"},
      {with(4), "pp=3,string=Et|t|tL",
       "the layout string has 3 t and 0 m; the model has 4 layers and 0 prediction layers", "pp=3,string=Et|tt|tL"},
      {with(3, 1), "pp=3,string=Et|t|tL",
       "the layout string has 3 t and 0 m; the model has 3 layers and 1 prediction layers", "pp=3,string=Et|t|tmL"},
      {with(2, 1), "pp=2,string=Et|tm||L",
       "the layout string has its m in chunk 1, which is not the last of a stage; those are chunks 2 to 3",
       "pp=2,string=Et|t|m|L"},
      {with(4, 1, true), "pp=2",
       "prediction layers and tied embeddings with pp=2 > 1: both want the last chunk's embedding; give a layout "
       "string whose m is in another chunk",
       "pp=1"},
      {with(2, 1, true), "pp=2,string=Et|t||mL",
       "prediction layers and tied embeddings with pp=2 > 1: both want the last chunk's embedding; give a layout "
       "string whose m is in another chunk",
       "pp=2,string=Et|t|m|L"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.refused_text));
    CHECK(said(c.m, c.refused_text) == std::string("reshard: ") + c.sentence);
    CHECK(said(c.m, c.accepted_text) == "accepted");
  }
}

TEST_CASE("Megatron's uneven pipelines: its stages, or its refusal") {
  std::ifstream stream(std::string(RESHARD_TEST_DATA) + "/megatron_uneven_pipelines.json");
  REQUIRE(stream.good());
  int equal = 0, not_legal = 0;
  for (const json& c : json::parse(stream)) {
    CAPTURE(c.dump());
    const bool embedding = c["account_for_embedding"], loss = c["account_for_loss"];
    std::string text = "pp=" + c["pp"].dump() + ",vpp=" + c["vpp"].dump();
    if (embedding || loss)
      text += embedding && loss ? ",split=account" : embedding ? ",split=account_embedding" : ",split=account_loss";
    if (!c["first_stage_layers"].is_null()) text += ",first=" + c["first_stage_layers"].dump();
    if (!c["last_stage_layers"].is_null()) text += ",last=" + c["last_stage_layers"].dump();
    const index_t layers = c["layers"];
    const std::string sentence = refused([&] { require_legal(with(layers), parse_degrees(text)); });
    if (c.contains("refused") || !c.value("covers", true)) {
      CHECK(sentence != "accepted");
      ++not_legal;
      continue;
    }
    REQUIRE(sentence == "accepted");
    const degrees d = parse_degrees(text);
    const pipeline_placement placed(layers, d);
    for (index_t k = 0; k < placed.chunks(); ++k) {
      const auto stage = static_cast<std::size_t>(k % d.pp), turn = static_cast<std::size_t>(k / d.pp);
      const json& wanted = c["stages"][stage][turn];
      CHECK(placed.chunk(k) == interval{wanted[0], wanted[1]});
    }
    ++equal;
  }
  CHECK(equal > 15);
  CHECK(not_legal > 8);
}
