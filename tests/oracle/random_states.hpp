// SPDX-License-Identifier: Apache-2.0
//
// Random lists of states as text: ready ones, and lists of their own over every level and dtype; and texts that are
// none. Counts what was drawn.
// Builds on trainer_holds.hpp.
#pragma once

#include "trainer_holds.hpp"

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace oracle::trainer {

class state_generator {
 public:
  explicit state_generator(std::uint64_t seed) : random_(seed) {}

  // The text of a list; the oracle reads it too.
  std::string next() {
    static const std::vector<std::string> ready = {"adam",     "adam+grad",     "lion", "lion+grad",
                                                   "momentum", "momentum+grad", "sgd",  "sgd+grad"};
    if (below(2) == 0) {
      const std::string text = ready[below(ready.size())];
      ++counted_[text];
      return text;
    }
    const std::size_t count = below(8) == 0 ? 16 : 1 + below(5);
    std::vector<std::string> items;
    const std::size_t parameters = below(count);
    bool gradients = false, others = false;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string level = std::to_string(i == parameters ? 3 : 1 + below(3));
      gradients = gradients || level == "2", others = others || (level == "3" && i != parameters);
      items.push_back((i == parameters ? "param" : "state_" + std::to_string(i)) + ":" + dtypes()[below(4)] + ":" +
                      level);
    }
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ",") + item;
    ++counted_["lists of their own"];
    counted_["with a level of 2"] += gradients ? 1 : 0;
    counted_["with a level of 3 beside param"] += others ? 1 : 0;
    counted_["without a level of 1"] += text.find(":1") == std::string::npos ? 1 : 0;
    counted_["of sixteen"] += count == 16 ? 1 : 0;
    return text;
  }

  // A list with one thing wrong in many cases: a part lost, doubled or changed.
  std::string next_doubtful() {
    std::string text = next();
    if (text.find(':') == std::string::npos) text = "param:bf16:3,m:fp32:1,n:fp16:2";
    const std::vector<std::string> bits = {",", ":", "3", "4", "0", "fp8", "fp64", "param", "m", ",m:fp32:1", "+grad"};
    const std::string bit = bits[below(bits.size())];
    const std::size_t at = below(text.size() + 1);
    switch (below(4)) {
      case 0: return text.insert(at, bit);
      case 1: return text.erase(at, 1 + below(6));
      case 2: return text + bit;
      default: return text.replace(at, at < text.size() ? 1 : 0, bit);
    }
  }

  // How often each kind was drawn.
  const std::map<std::string, long>& counted() const { return counted_; }

 private:
  static const std::vector<std::string>& dtypes() {
    static const std::vector<std::string> all = {"bf16", "fp16", "fp32", "fp8"};
    return all;
  }
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }

  std::mt19937_64 random_;
  std::map<std::string, long> counted_;
};

}  // namespace oracle::trainer
