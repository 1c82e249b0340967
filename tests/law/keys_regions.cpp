// SPDX-License-Identifier: Apache-2.0
// Every key of a layout, on every architecture, of any list of states: what `reshard regions` prints of each rank is
// what the oracle says, which was written from the contract alone; and a layout is refused where the oracle refuses it.
// The cases are runs of Megatron-core, and random ones.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>
#include <reshard/space/cover.hpp>

#include "../oracle/golden_file.hpp"
#include "../oracle/random_keys.hpp"
#include "../oracle/random_states.hpp"
#include "../support/dice.hpp"
#include "../support/printed.hpp"
#include "../support/tries.hpp"

using namespace reshard;
namespace trainer = oracle::trainer;
using nlohmann::json;
using testing::difference, testing::expected, testing::printed;

namespace {

std::string refusal_of(const std::string& config, const std::string& layout) {
  try {
    space(io::parse_config(config, "model"), parse_degrees(layout));
    return {};
  } catch (const refusal& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("golden: what every rank of real Megatron models holds") {
  long ranks = 0, refused = 0;
  for (const json& c : golden("megatron_holds.json")) {
    const std::string config = c.at("config").dump(), layout = c.at("layout").get<std::string>();
    CAPTURE(config);
    CAPTURE(layout);
    const std::string why = refusal_of(config, layout);
    CAPTURE(why);
    CHECK(why.empty() == !c.contains("refused"));
    if (c.contains("refused")) {
      ++refused;
      continue;
    }
    if (!why.empty()) continue;
    const computed_holding h(space(io::parse_config(config, "model"), parse_degrees(layout)));
    CHECK(covers(h));
    const trainer::model m = trainer::read_model(c.at("config"));
    const trainer::layout l = trainer::parse(m, layout);
    for (rank_t rank = 0; rank < h.ranks(); ++rank, ++ranks)
      CHECK(difference(printed(h, rank), expected(m, l, rank, trainer::parse_states("adam"))) == "");
  }
  MESSAGE(ranks, " ranks, ", refused, " refused");
}

TEST_CASE("random layouts over every key and architecture: every rank, state and element") {
  const char* const given = std::getenv("RESHARD_LAYOUTS");
  const long cases = given != nullptr ? std::atol(given) : testing::tries(1050);
  trainer::key_generator random(testing::seed());
  trainer::state_generator lists(testing::seed());
  long elements = 0, in_buffers = 0;
  for (long i = 0; i < cases; ++i) {
    const trainer::layout_case c = random.next_layout();
    const std::string list_text = i % 3 == 0 ? "adam" : lists.next();
    const state_list list = parse_state_list(list_text);
    const std::vector<trainer::state> states = trainer::parse_states(list_text);
    CAPTURE(list_text);
    CAPTURE(c.describe());
    const std::string config = c.config.dump(), why = refusal_of(config, c.text);
    CHECK(why == "");
    if (!why.empty()) continue;
    const computed_holding h(space(io::parse_config(config, "model"), parse_degrees(c.text)), list);
    CHECK(covers(h));
    CHECK(agrees(h));
    for (const trainer::state& s : states) in_buffers += s.level == 2 && c.parsed.zero == 2 && !c.parsed.rows ? 1 : 0;
    CHECK(h.ranks() == c.parsed.world);
    bytes_t most = 0;
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      const auto theirs = expected(c.m, c.parsed, rank, states);
      CHECK(difference(printed(h, rank, list), theirs) == "");
      bytes_t bytes = 0;
      for (const trainer::state& s : states) {
        const bytes_t of_state = trainer::bytes_held(c.m, c.parsed, rank, s);
        CHECK(held_bytes(h, rank, list.named(s.name)) == of_state);
        bytes += of_state;
      }
      CHECK(held_bytes(h, rank) == bytes);
      most = greatest(most, bytes);
      for (const auto& [state, tensors] : theirs)
        for (const auto& [tensor, set] : tensors) elements += trainer::count(set);
    }
    CHECK(max_bytes_per_rank(h) == most);
  }
  MESSAGE(cases, " layouts, ", elements, " elements\n", random.layout_census().report());
  for (const auto& drawn : lists.counted()) MESSAGE(drawn.second, " lists of states: ", drawn.first);
  MESSAGE(in_buffers, " states of level 2 in optimizer buffers");
  if (cases < 1000) return;
  CHECK_DRAWN(in_buffers >= 15);
  for (const auto& drawn : lists.counted()) {
    CAPTURE(drawn.first);
    CHECK_DRAWN(drawn.second >= 10);
  }
  CHECK_DRAWN(lists.counted().size() == 13);
}

TEST_CASE("what no degree divides, of a checkpoint's tensors: every rank, state and element, as chunk() cuts them") {
  trainer::key_dice random(testing::seed());
  const std::vector<trainer::state> states = trainer::parse_states("adam");
  long elements = 0, grouped = 0, with_experts = 0, sharded = 0, copies = 0;
  std::map<std::string, long> uneven;
  for (int i = 0; i < testing::tries(150);) {
    trainer::feature_set wanted = {"names", i % 3 == 0 ? "ep" : "tp"};
    if (const long toss = random.below(4); toss < 2) wanted.insert(toss == 0 ? "tied" : "predictions");
    const std::string config = trainer::random_config(random, wanted).dump();
    const trainer::model m = trainer::read_model(nlohmann::json::parse(config));
    std::string text = "names=hf,shard=rows,tp=" + std::to_string(random.one_of({2, 3, 3, 5, 6, 7, 9})) +
                       ",dp=" + std::to_string(random.one_of({1, 2, 3, 4, 6})) +
                       ",zero=" + std::to_string(random.below(4));
    if (random.below(3) == 0) text += ",pp=2,split=spread";
    if (random.below(3) == 0) text += ",instances=2";
    if (random.below(4) == 0) text += ",pad=3";
    if (m.experts > 0 && random.below(2) == 0) text += ",experts=grouped";
    if (m.experts > 0) text += ",ep=" + std::to_string(random.one_of({1, 2, 3, 5}));
    if (m.experts > 0 && random.below(2) == 0) text += ",etp=" + std::to_string(random.one_of({2, 3, 5}));
    const std::string why = trainer::why_illegal(m, text);
    CAPTURE(config);
    CAPTURE(text);
    CAPTURE(why);
    CHECK(refusal_of(config, text).empty() == why.empty());
    if (!why.empty()) continue;
    const trainer::layout l = trainer::parse(m, text);
    if (l.world > 72) continue;
    const computed_holding h(space(io::parse_config(config, "model"), parse_degrees(text)));
    bool any = false;
    for (int f = 0; f < h.families(); ++f)
      if (h.space().cut_unevenly(f)) any = true, ++uneven[std::string(h.family_at(f).name)];
    if (!any) continue;
    ++i, copies += l.pp > 1 && (m.tied || m.predictions > 0) ? 1 : 0, grouped += l.grouped ? 1 : 0,
        with_experts += m.experts > 0 ? 1 : 0, sharded += l.zero > 0 ? 1 : 0;
    CHECK(covers(h));
    CHECK(agrees(h));
    bytes_t most = 0;
    for (rank_t rank = 0; rank < h.ranks(); ++rank) {
      const auto theirs = expected(m, l, rank, states);
      CHECK(difference(printed(h, rank), theirs) == "");
      bytes_t bytes = 0;
      for (const trainer::state& s : states) bytes += trainer::bytes_held(m, l, rank, s);
      CHECK(held_bytes(h, rank) == bytes);
      most = greatest(most, bytes);
      for (const auto& [state, tensors] : theirs)
        for (const auto& [tensor, set] : tensors) elements += trainer::count(set);
    }
    CHECK(max_bytes_per_rank(h) == most);
  }
  for (const auto& [name, times] : uneven) MESSAGE(times, " times uneven: ", name);
  MESSAGE(elements, " elements; ", with_experts, " with experts, ", grouped, " of them grouped, ", sharded,
          " sharded, ", copies, " with copies of the embedding");
  CHECK_DRAWN(uneven.size() >= 8);
  CHECK_DRAWN(copies > 0);
  CHECK_DRAWN(grouped > 0);
  CHECK_DRAWN(with_experts > grouped);
  CHECK_DRAWN(sharded > 0);
}

TEST_CASE(
    "random texts: a list of states is read where the oracle reads one, and says the same; else it is refused, and "
    "where a name has a plus") {
  trainer::state_generator random(testing::seed());
  long read = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = i % 4 == 0 ? random.next() : random.next_doubtful();
    CAPTURE(text);
    std::vector<trainer::state> theirs;
    std::string why, sentence;
    try {
      theirs = trainer::parse_states(text);
    } catch (const std::exception& e) {
      why = e.what();
    }
    try {
      const state_list ours = parse_state_list(text);
      REQUIRE(ours.size() == static_cast<int>(theirs.size()));
      for (int s = 0; s < ours.size(); ++s) {
        const trainer::state& wanted = theirs[static_cast<std::size_t>(s)];
        CHECK(ours[s].name == wanted.name);
        CHECK(width(ours[s].type) == wanted.width);
        CHECK(ours[s].level == wanted.level);
      }
    } catch (const refusal& e) {
      sentence = e.what();
    }
    CAPTURE(why);
    CAPTURE(sentence);
    // the library wants plainer names than the contract, which leaves them open
    bool plus = false;
    for (const trainer::state& s : theirs) plus = plus || s.name.find('+') != std::string::npos;
    if (plus) CHECK(sentence.find("has characters that are none of letters, digits") != std::string::npos);
    else CHECK(sentence.empty() == why.empty());
    CHECK((sentence.empty() || sentence.starts_with("reshard: states: ")));
    ++(sentence.empty() ? read : refused);
  }
  MESSAGE(read, " texts read, ", refused, " refused");
  CHECK_DRAWN(read > 500);
  CHECK_DRAWN(refused > 500);
}
