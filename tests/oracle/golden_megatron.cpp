// SPDX-License-Identifier: Apache-2.0
//
// The oracle of trainers' layouts against runs of Megatron-core: what every rank of real models holds, and what the
// optimizer's buffers are. Where contract and run differ, the run is right.
#include "golden_file.hpp"
#include "trainer_holds.hpp"

#include <map>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using namespace oracle::trainer;

// begin, end, begin, end, ...
intervals pairs(const json& list) {
  intervals set;
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) set.emplace_back(list.at(i), list.at(i + 1));
  return as_set(set);
}

const state param = {"param", 2, 3}, master = {"master", 4, 1};

}  // namespace

TEST_CASE("every rank of 93 models, or a refusal") {
  const json cases = golden("megatron_holds.json");
  REQUIRE(cases.size() == 93);
  long with_ranks = 0, ranks = 0, refused = 0;
  for (const json& c : cases) {
    const model m = read_model(c.at("config"));
    const std::string text = c.at("layout"), what = text + " of " + c.at("config").dump();
    if (c.contains("refused")) {
      CHECK_MESSAGE(!why_illegal(m, text).empty(), what, ": ", c.at("refused").dump());
      ++refused;
      continue;
    }
    REQUIRE_MESSAGE(why_illegal(m, text) == "", what);
    const layout l = parse(m, text);
    REQUIRE_MESSAGE(l.world == c.at("world").get<long>(), what);
    REQUIRE(l.world == length(c.at("ranks")));
    ++with_ranks;
    for (long rank = 0; rank < l.world; ++rank) {
      const auto expected = [&](std::size_t which) {
        holding h;
        const json& table = c.at("tables").at(c.at("ranks").at(at(rank)).at(which).get<std::size_t>());
        for (const json& entry : table) h[entry.at(0)] = pairs(c.at("sets").at(entry.at(1).get<std::size_t>()));
        return h;
      };
      CHECK_MESSAGE(held(m, l, rank, param) == expected(0), "param of rank ", rank, " under ", what);
      CHECK_MESSAGE(held(m, l, rank, master) == expected(1), "master of rank ", rank, " under ", what);
      ++ranks;
    }
  }
  CHECK(with_ranks == 75);
  CHECK(refused == 18);
  MESSAGE(with_ranks, " models, ", ranks, " ranks in two states; ", refused, " refused");
}

TEST_CASE("every rank of the first seven models, in four states") {
  const json cases = golden("megatron_models.json");
  REQUIRE(cases.size() == 7);
  for (const json& c : cases) {
    const model m = read_model(c.at("config"));
    const layout l = parse(m, c.at("layout").get<std::string>());
    REQUIRE(l.world == length(c.at("ranks")));
    for (long rank = 0; rank < l.world; ++rank) {
      std::map<std::string, holding> expected, found;
      for (const json& h : c.at("ranks").at(at(rank))) expected[h.at(0)][h.at(1)] = pairs(h.at(2));
      for (const state& s : parse_states("adam"))
        if (const holding h = held(m, l, rank, s); !h.empty()) found[s.name] = h;
      CHECK_MESSAGE(found == expected, c.at("layout").dump(), " rank ", rank);
    }
  }
}

TEST_CASE("buckets and shards of the optimizer's buffers") {
  const json cases = golden("zero1_buffers.json");
  REQUIRE(cases.size() == 8);
  for (const json& c : cases) {
    std::vector<packed> list;
    for (const json& p : c.at("params")) list.push_back({p.at("name"), p.at("numel"), p.at("shared_embedding")});
    const long n = c.at("dp"), bucket = c.at("bucket_size").is_null() ? -1 : c.at("bucket_size").get<long>();
    const buffer b = pack(list, n, bucket, c.at("pad_for_high_bus_bandwidth"));
    CHECK(b.buckets == c.at("buckets").get<std::vector<interval>>());
    CHECK(b.unpadded == c.at("unpadded").get<numbers>());
    json map = json::object();
    for (const place& p : b.places) map[p.name] = {p.begin, p.end, p.bucket};
    CHECK(map == c.at("index_map"));
    for (const json& shard : c.at("shards")) {
      const auto [begin, end] = b.buckets.at(shard.at("bucket").get<std::size_t>());
      const long width = (end - begin) / n, from = begin + shard.at("dp_rank").get<long>() * width, to = from + width;
      CHECK(json{from, to} == shard.at("range"));
      json params = json::object();
      for (const place& p : b.places)
        if (std::max(p.begin, from) < std::min(p.end, to))
          params[p.name] = {std::max(p.begin, from) - p.begin, std::min(p.end, to) - p.begin};
      CHECK(params == shard.at("params"));
    }
  }
}
