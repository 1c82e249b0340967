// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <reshard/elastic/job_keys.hpp>

#include "../support/refused.hpp"

using namespace reshard;

TEST_CASE("all keys of a job stand under its prefix, and no two jobs share one") {
  const job_keys keys("llama");
  CHECK(keys.prefix() == "reshard/llama/");
  CHECK(keys.record() == "reshard/llama/record");
  CHECK(keys.said(3, 2, "acked.120") == "reshard/llama/said/3.2/acked.120/");
  for (const std::string& key :
       {keys.record(), keys.members(), keys.requests(), keys.answers(), keys.said(1, 0, "here")}) {
    CHECK(key.starts_with(keys.prefix()));
    CHECK_FALSE(key.starts_with(job_keys("llam").prefix()));
  }
  CHECK(keys.said(1, 0, "here").starts_with(keys.said()));
  CHECK(testing::refused([] { job_keys("a job"); }).find("visible") != std::string::npos);
}

TEST_CASE("a registration is read as it was written; what is none is refused by its text") {
  const registration r{"10.0.0.1:7000", "10.0.0.1:7001", "node 3"};
  const registration again = registration::of(r.text());
  CHECK(again.address == r.address);
  CHECK(again.pulses == r.pulses);
  CHECK(again.node == r.node);
  CHECK(registration::of("a b ").node.empty());
  for (const char* text : {"", "a", "a b"})
    CHECK(testing::refused([&] { registration::of(text); }) ==
          "reshard: registration '" + std::string(text) + "': it is an address, another for pulses, and a node");
}
