// SPDX-License-Identifier: Apache-2.0
//
// A golden file of tests/data, parsed.
#pragma once

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>

#ifndef RESHARD_TEST_DATA
#error "RESHARD_TEST_DATA must be the path of tests/data, as a string literal"
#endif

inline nlohmann::json golden(const std::string& name) {
  std::ifstream file(std::string(RESHARD_TEST_DATA) + "/" + name);
  REQUIRE_MESSAGE(file, "cannot read ", name);
  return nlohmann::json::parse(file);
}
