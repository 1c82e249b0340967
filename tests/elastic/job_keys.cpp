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
  CHECK(keys.members() == "reshard/llama/members/");
  CHECK(keys.places() == "reshard/llama/places/");
  CHECK(keys.paces() == "reshard/llama/paces/");
  CHECK(keys.requests() == "reshard/llama/requests/");
  CHECK(keys.answers() == "reshard/llama/answers/");
  CHECK(keys.said() == "reshard/llama/said/");
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
  CHECK(r.text() == "10.0.0.1:7000 10.0.0.1:7001 node 3");
  CHECK(registration::of("a b ").node.empty());
  const registration gap = registration::of("a  b c");
  CHECK((gap.address == "a" && gap.pulses.empty() && gap.node == "b c"));
  const auto none = [](const std::string& shown) {
    return "reshard: registration '" + shown + "': it is an address, another for pulses, and a node";
  };
  for (const std::string text : {"", "a", "a b"})
    CHECK(testing::refused([&] { registration::of(text); }) == none(text));
  // of what is none 100 characters are shown
  std::string text;
  while (text.size() < 99) text += static_cast<char>('a' + text.size() % 26);
  for (const char* const end : {"", "1", "12", "123"})
    CHECK(testing::refused([&] { registration::of(text + end); }) == none((text + end).substr(0, 100)));
}
