// SPDX-License-Identifier: Apache-2.0
// Layout strings: what they write out to, what is refused, a text for every value, and Megatron's own answers.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reshard/model/transformer.hpp>
#include <reshard/parallelism/legal.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/parallelism/pipeline.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"

using namespace reshard;
using nlohmann::json;
using testing::dice, testing::refused;

namespace {

// The same cases at both times.
constexpr bool written_out() {
  const pipeline_string s = parse_pipeline_string("Et*3|(tt|)*2,t|mL");
  const chunk_run runs[] = {{1, 3}, {2, 2}, {1, 1}, {1, 0}};
  for (int i = 0; i < 4; ++i)
    if (s.run[i] != runs[i]) return false;
  return s.given() && s.runs == 4 && s.chunks == 5 && s.layers == 8 && s.predictions == 1 && s.prediction_chunk == 4;
}
constexpr bool commas_and_nothing_given() {
  return !pipeline_string{}.given() && parse_pipeline_string("E,tt,|,L") == parse_pipeline_string("Ett|L") &&
         parse_pipeline_string("EL").chunks == 1 && parse_pipeline_string("E|*3L").chunks == 4;
}
constexpr bool groups_come_before_letters() {
  // (t*2|)*3 is t*2|t*2|t*2|, and then every t*2 is tt
  return parse_pipeline_string("E(t*2|)*3L") == parse_pipeline_string("Ett|tt|tt|L") &&
         parse_pipeline_string("E(t|)*0tL") == parse_pipeline_string("EtL") &&
         parse_pipeline_string("Et*0|tL") == parse_pipeline_string("E|tL");
}
constexpr bool equal_chunks_are_one_run() {
  const pipeline_string two = parse_pipeline_string("Et|tL"), none = parse_pipeline_string("E|||L");
  return two.runs == 1 && two.run[0] == chunk_run{2, 1} && none.runs == 1 && none.run[0] == chunk_run{4, 0} &&
         parse_pipeline_string("Et|tt|tL").runs == 3;
}
static_assert(written_out() && commas_and_nothing_given() && groups_come_before_letters());
static_assert(equal_chunks_are_one_run());

json data(const std::string& file) {
  std::ifstream stream(std::string(RESHARD_TEST_DATA) + "/" + file);
  REQUIRE(stream.good());
  return json::parse(stream);
}

model with_layers(index_t layers, index_t predictions, index_t size = 48) {
  transformer t{.name = "m",
                .layers = layers,
                .hidden = size,
                .heads = size,
                .groups = size,
                .head_dim = 1,
                .ffn = size,
                .vocabulary = size};
  t.predictions = predictions;
  return make_transformer(t);
}

std::string said(const std::string& text) {
  return refused([&] { static_cast<void>(parse_pipeline_string(text)); });
}
}  // namespace

TEST_CASE("the same at run time") {
  CHECK(written_out());
  CHECK(commas_and_nothing_given());
  CHECK(groups_come_before_letters());
  CHECK(equal_chunks_are_one_run());
}

TEST_CASE("a string is written with a number from three letters on, and from two equal chunks on") {
  const auto again = [](const std::string& text) { return to_text(parse_pipeline_string(text)); };
  CHECK(again("EL") == "EL");
  CHECK(again("EttL") == "EttL");
  CHECK(again("EtttL") == "Et*3L");
  CHECK(again("EttttL") == "Et*4L");
  CHECK(again("E|L") == "E|L");  // the last chunk has no | behind it
  CHECK(again("Et|tL") == "Et|tL");
  CHECK(again("Et|t|tL") == "E(t|)*2tL");
  CHECK(again("E|||L") == "E|*3L");
  CHECK(again("Et||L") == "Et||L");
  CHECK(again("Et|||L") == "Et||*2L");
  CHECK(again("Ettt|ttt|ttt|tL") == "E(t*3|)*3tL");
  CHECK(again("Et|t|tm|L") == "E(t|)*2tm|L");
  CHECK(again("Em|L") == "Em|L");
  CHECK(again("Et|tmmL") == "Et|tmmL");
  std::string most = "E";  // runs
  for (int run = 0; run < pipeline_string::capacity; ++run) most += run % 2 == 0 ? "t|" : "tt|";
  most.back() = 'L';
  CHECK(parse_pipeline_string(most).runs == 48);
  CHECK(again(most) == most);
}

TEST_CASE("parse_pipeline_string(to_text(s)) == s, also where m sits alone, in front, or in the last chunk") {
  dice random(3);
  int with_predictions = 0;
  for (int n = 0; n < 2000; ++n) {
    std::string text = "E";
    const index_t chunks = random.within(1, 9), predicting = random.below(2 * chunks);
    index_t layers = random.below(4);
    for (index_t k = 0; k < chunks; ++k) {
      if (random.below(3) == 0) layers = random.below(5);
      if (k <= predicting) text.append(static_cast<std::size_t>(layers), 't');
      if (k == predicting) text.append(static_cast<std::size_t>(random.within(1, 3)), 'm');
      text += k + 1 < chunks ? "|" : "L";
    }
    CAPTURE(text);
    const pipeline_string s = parse_pipeline_string(text);
    CHECK(s.chunks == chunks);
    CHECK(s.layers == std::count(text.begin(), text.end(), 't'));
    CHECK(s.predictions == std::count(text.begin(), text.end(), 'm'));
    CHECK(parse_pipeline_string(to_text(s)) == s);
    CHECK(parse_degrees("pp=" + std::to_string(chunks) + ",string=" + to_text(s)).string == s);
    with_predictions += s.predictions > 0 ? 1 : 0;
  }
  CHECK_DRAWN(with_predictions > 500);
}

TEST_CASE("what is no layout string is refused, with the text and what is wrong") {
  CHECK(said("ttL") == "reshard: layout: string=ttL needs exactly one E, before all other letters");
  CHECK(said("tEL") == "reshard: layout: string=tEL needs exactly one E, before all other letters");
  CHECK(said("EEL") == "reshard: layout: string=EEL needs exactly one E, before all other letters");
  CHECK(said("Ett") == "reshard: layout: string=Ett needs exactly one L, after all other letters");
  CHECK(said("ELt") == "reshard: layout: string=ELt needs exactly one L, after all other letters");
  CHECK(said("ELL") == "reshard: layout: string=ELL needs exactly one L, after all other letters");
  CHECK(said("") == "reshard: layout: string= needs exactly one E, before all other letters");
  CHECK(said("ExL") == "reshard: layout: string=ExL has the character x; E, t, m, L and | are known");
  CHECK(said("E()*2L") == "reshard: layout: string=E()*2L has the character (; E, t, m, L and | are known");
  CHECK(said("E((t)*2)*2L") == "reshard: layout: string=E((t)*2)*2L has the character (; E, t, m, L and | are known");
  CHECK(said("Et*L") == "reshard: layout: string=Et*L has the character *; E, t, m, L and | are known");
  CHECK(said("EmtL") == "reshard: layout: string=EmtL has a t after an m");
  CHECK(said("Em|tL") == "reshard: layout: string=Em|tL has a t after an m");
  CHECK(said("Em|mL") == "reshard: layout: string=Em|mL has m in chunks 0 and 1; all prediction layers sit in one");
  CHECK(said("Et*1048577L") == "reshard: layout: string=Et*1048577L stands for more than 1048576 characters");
  CHECK(said("Et*99999999999999999999L").find("stands for more than 1048576 characters") != std::string::npos);
  CHECK(said("Et*1048574L") == "accepted");  // with E and L the most there are
  CHECK(said("Et*1048575L") == "reshard: layout: string=Et*1048575L stands for more than 1048576 characters");
  CHECK(said("E(tt)*524287L") == "accepted");
  CHECK(said("E(tt)*524288L") == "reshard: layout: string=E(tt)*524288L stands for more than 1048576 characters");
  CHECK(said("E(t)*1048575t*0L").find("stands for more than 1048576 characters") != std::string::npos);
  // what groups write out counts before the letters do; and all of it counts, whatever else is wrong
  CHECK(said("E(Lt*0)*262144").find("stands for more than 1048576 characters") != std::string::npos);
  CHECK(said("E(Lt*0)*262143").find("needs exactly one L") != std::string::npos);
  CHECK(said("t*1048577").find("stands for more than 1048576 characters") != std::string::npos);
  CHECK(said("t*1048576").find("needs exactly one E") != std::string::npos);
  CHECK(said("E(t*2)*3L") == "accepted");
  CHECK(said("Ett2L") == "reshard: layout: string=Ett2L has the character 2; E, t, m, L and | are known");
  CHECK(said("E(t)2L") == "reshard: layout: string=E(t)2L has the character (; E, t, m, L and | are known");
  CHECK(said("E()t)*2L") == "reshard: layout: string=E()t)*2L has the character (; E, t, m, L and | are known");
  CHECK(said("E(tL") == "reshard: layout: string=E(tL has the character (; E, t, m, L and | are known");
  CHECK(said("Et)L") == "reshard: layout: string=Et)L has the character ); E, t, m, L and | are known");
  CHECK(said("E(t)L") == "reshard: layout: string=E(t)L has the character (; E, t, m, L and | are known");
  CHECK(said("E(t)*L") == "reshard: layout: string=E(t)*L has the character (; E, t, m, L and | are known");
  std::string runs = "E";
  for (int i = 0; i < pipeline_string::capacity; ++i) runs += i % 2 == 0 ? "t|" : "tt|";
  CHECK(said(runs + "L") == "reshard: layout: string=" + runs + "L has more than 48 runs of equal chunks");
  CHECK(said(runs.substr(0, runs.size() - 3) + "L") == "accepted");
}

TEST_CASE("Megatron's layout strings: its chunks, or its refusal") {
  int equal = 0, not_legal = 0;
  for (const json& c : data("megatron_layout_strings.json")) {
    const std::string text = c["string"];
    CAPTURE(text);
    const index_t pp = c["pp"], layers = c["layers"], predictions = c["mtp"];
    const auto made = [&] {
      degrees d;
      d.pp = pp;
      d.string = parse_pipeline_string(text);
      detail::settle_chunks(d, false);
      return layers == 0 ? d : require_legal(with_layers(layers, std::min<index_t>(predictions, 1)), d);
    };
    if (c.contains("refused") || predictions > 1) {  // more than one prediction layer is not built
      if (c.contains("refused")) CHECK(refused([&] { made(); }) != "accepted");
      ++not_legal;
      continue;
    }
    const degrees d = made();
    const pipeline_placement placed(layers, d);
    CHECK(d.vpp == c["vpp"].get<index_t>());
    for (index_t k = 0; k < placed.chunks(); ++k) {
      const auto stage = static_cast<std::size_t>(placed.stage_of_chunk(k)), turn = static_cast<std::size_t>(k / pp);
      std::vector<index_t> held;
      for (index_t l = placed.chunk(k).begin; l < placed.chunk(k).end; ++l) held.push_back(l);
      CHECK(held == c["decoders"][stage][turn].get<std::vector<index_t>>());
      if (!c["mtps"].is_null()) CHECK((placed.prediction_chunk() == k) == !c["mtps"][stage][turn].empty());
    }
    ++equal;
  }
  CHECK(equal + not_legal == 32);
  CHECK(equal >= 10);
  CHECK(not_legal >= 5);
}
