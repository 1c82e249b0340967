// SPDX-License-Identifier: Apache-2.0
// The record as JSON: as it is printed, and read again by another reader.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <reshard/io/record_json.hpp>

using namespace reshard;
using nlohmann::json;

namespace {

std::string printed(const job_record& r) {
  io::text_output out;
  io::write_record_json(out, r);
  return out.text();
}
world two(index_t epoch) { return {.epoch = epoch, .members = {"n0#1", "b"}, .layout = {.dp = 2}, .batch = 4}; }

}  // namespace

TEST_CASE("a job that was not founded yet") {
  CHECK(printed({}) ==
        "{\"phase\":\"founding\",\"epoch\":0,\"attempt\":0,\"boundary\":0,\"wanted\":1,\"from_copies\":false,"
        "\"worlds\":[],\"proposed\":null,"
        "\"promises\":[],\"gone\":[],\"request\":null}\n");
}

TEST_CASE("a change that is armed") {
  const job_record r{.phase = job_phase::armed,
                     .epoch = 3,
                     .attempt = 2,
                     .boundary = 120,
                     .wanted = 2,
                     .worlds = {two(3)},
                     .proposed = {{.epoch = 4, .members = {"b"}, .first_step = 120, .cursor = 480, .batch = 4}},
                     .request = "ask#1"};
  CHECK(printed(r) ==
        "{\"phase\":\"armed\",\"epoch\":3,\"attempt\":2,\"boundary\":120,\"wanted\":2,\"from_copies\":false,"
        "\"worlds\":[{\"epoch\":3,"
        "\"members\":[\"n0#1\",\"b\"],\"layout\":\"dp=2\",\"first_step\":0,\"cursor\":0,\"batch\":4}],\"proposed\":"
        "{\"epoch\":4,\"members\":[\"b\"],\"layout\":\"\",\"first_step\":120,\"cursor\":480,\"batch\":4},"
        "\"promises\":[],\"gone\":[],\"request\":\"ask#1\"}\n");
}

TEST_CASE("promises and who is gone, read by another reader") {
  const job_record r{.phase = job_phase::recovering,
                     .epoch = 3,
                     .from_copies = true,
                     .worlds = {two(2), two(3)},
                     .promises = {{.told = {"b", 7, update_stage::scalar},
                                   .scalar = 0xFFFFFFFFFFFFFFFFu,
                                   .of_epoch = 2,
                                   .torn_stages = 4,
                                   .torn_in_place = 1,
                                   .torn_here = 3,
                                   .torn_unread = 2,
                                   .copies = {{"b", 6}, {"a", 4}}},
                                  {.told = {"n0#1", holds_nothing}}},
                     .gone = {"!~", "a"}};
  const json said = json::parse(printed(r));
  CHECK(said.size() == 11);
  CHECK(said["from_copies"] == true);
  CHECK(said["worlds"].size() == 2);
  CHECK(said["worlds"][1]["epoch"] == 3);
  CHECK(said["gone"] == json({"!~", "a"}));
  CHECK(said["promises"][0] == json({{"member", "b"},
                                     {"version", 7},
                                     {"stage", 2},
                                     {"scalar", 0xFFFFFFFFFFFFFFFFu},
                                     {"of_epoch", 2},
                                     {"torn_stages", 4},
                                     {"torn_in_place", 1},
                                     {"torn_here", 3},
                                     {"torn_unread", 2},
                                     {"copies", {{{"of", "b"}, {"version", 6}}, {{"of", "a"}, {"version", 4}}}}}));
  CHECK(said["promises"][1]["copies"] == json::array());
  CHECK(said["promises"][1]["version"].is_null());
  CHECK(said["promises"][1]["member"] == "n0#1");
}
