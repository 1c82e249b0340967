// SPDX-License-Identifier: Apache-2.0
// What every group of the trainer does, whatever carries it: called by each of four devices. What each finds wrong, in
// words.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "../../examples/trainer/collectives.hpp"

namespace testing {

class collectives_check {
 public:
  explicit collectives_check(trainer::world& here) : here_(here) {}

  /// Sums, largest values and posts of all, of two in another order, and of pipelines.
  std::string everything() {
    const auto all = here_.make({0, 1, 2, 3});
    expect(all->size() == 4 && all->rank() == here_.device(), "the group of all");
    for (const std::size_t size : {0u, 1u, 3u, 4u, 1001u, 40000u}) sums(*all, size, 0 + 1 + 2 + 3);
    exchanges(*all);
    if (here_.device() % 2 == 1) {
      const auto two = here_.make({3, 1});
      expect(two->size() == 2 && two->rank() == (here_.device() == 3 ? 0 : 1), "a group in another order");
      sums(*two, 17, 3 + 1);
      exchanges(*two);
    }
    pipeline(*all);
    sums(*all, 5, 0 + 1 + 2 + 3);
    return wrong_;
  }
  /// Devices wait in a sum, in an exchange and for a message; one closes the job. Each wait ends with peer_gone.
  std::string closed() {
    const auto all = here_.make({0, 1, 2, 3});
    if (here_.device() == 2) {
      here_.close();
      return wrong_;
    }
    try {
      std::vector<double> values(1000);
      if (here_.device() == 0) all->sum(values);
      if (here_.device() == 1) all->exchange(std::as_bytes(std::span(values)));
      if (here_.device() == 3) all->receive(2, std::as_writable_bytes(std::span(values)));
      expect(false, "a wait that ends well though its peer is gone");
    } catch (const trainer::peer_gone&) {
      return wrong_;
    }
    return wrong_;
  }

 private:
  void expect(bool right, const std::string& what) {
    if (!right) wrong_ += "device " + std::to_string(here_.device()) + ": " + what + "; ";
  }
  void sums(trainer::group& g, std::size_t size, int devices_sum) {
    const double mine = static_cast<double>(here_.device());
    std::vector<double> values(size);
    std::vector<float> largest(size);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = mine + static_cast<double>(i) / 4;
      largest[i] = static_cast<float>(i % 2 == 0 ? mine : -mine);
    }
    g.sum(values), g.max(largest);
    bool right = true;
    for (std::size_t i = 0; i < size; ++i) {
      right = right && values[i] == devices_sum + static_cast<double>(g.size()) * static_cast<double>(i) / 4;
      right = right && largest[i] == (i % 2 == 0 ? 3.0f : g.size() == 4 ? 0.0f : -1.0f);
    }
    expect(right, "a sum or maximum of " + std::to_string(size));
  }
  void exchanges(trainer::group& g) {
    for (int round = 0; round < 3; ++round) {
      const auto text = [&](int rank) {
        return std::string(static_cast<std::size_t>(rank * rank * 5000 * (round % 2)),
                           static_cast<char>('a' + rank + round));
      };
      const std::string mine = text(g.rank());
      const std::vector<trainer::bytes> all = g.exchange(std::as_bytes(std::span(mine)));
      for (int r = 0; r < g.size(); ++r) {
        const trainer::bytes theirs = all[static_cast<std::size_t>(r)];
        expect(text(r) == std::string(reinterpret_cast<const char*>(theirs.data()), theirs.size()), "what one posted");
      }
    }
  }
  /// Messages are received in the order in which they were sent, each from who is asked.
  void pipeline(trainer::group& g) {
    std::vector<float> message(20000);
    for (int n = 0; n < 4; ++n) {
      if (g.rank() > 0) {
        g.receive(g.rank() - 1, std::as_writable_bytes(std::span(message)));
        expect(message.front() == static_cast<float>(n * 10 + g.rank() - 1) && message.back() == message.front(),
               "a message");
      }
      std::fill(message.begin(), message.end(), static_cast<float>(n * 10 + g.rank()));
      if (g.rank() < 3) g.send(g.rank() + 1, std::as_bytes(std::span(message)));
    }
  }

  trainer::world& here_;
  std::string wrong_;
};

}  // namespace testing
