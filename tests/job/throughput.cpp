// SPDX-License-Identifier: Apache-2.0
// With how many ranks is a batch fastest: by looking at every n; and a model fitted to what a model says is that model.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <reshard/job/batch.hpp>
#include <reshard/job/throughput.hpp>

#include "../support/dice.hpp"
#include "../support/refused.hpp"
#include "../support/tries.hpp"

using namespace reshard;
using testing::dice;

namespace {

/// What would be measured of a step that takes what a model says.
std::vector<measured_throughput> measured(const step_model& m, const std::vector<index_t>& batches, rank_t most) {
  std::vector<measured_throughput> rows;
  for (const index_t batch : batches)
    for (rank_t n = 1; n <= most; n *= 2) rows.push_back({batch, n, static_cast<double>(batch) / m.seconds(batch, n)});
  return rows;
}

}  // namespace

TEST_CASE("of a table: the largest n with the highest throughput, whatever the order of rows") {
  dice random;
  for (int i = 0; i < testing::tries(200); ++i) {
    throughput_table table(std::span<const measured_throughput>{});
    double best = 0;
    rank_t largest = 0;
    for (int row = 0; row < 12; ++row) {
      const rank_t n = row * 7 % 12 + 1;
      const auto speed = static_cast<double>(random.within(1, 4));
      table.add({64, n, speed});
      table.add({65, n, 100});
      if (speed > best) best = speed, largest = 0;
      if (speed == best && n > largest) largest = n;
    }
    CHECK(table(64) == largest);
    CHECK(table(65) == 12);
    CHECK_REFUSED(table(66), "throughput: batches of 66 samples were not measured; the table has 24 other rows");
  }
}

TEST_CASE("of a model: what looking at every n finds") {
  dice random(1);
  const int rounds = testing::tries(300);
  int inside = 0;
  for (int i = 0; i < rounds; ++i) {
    const step_model m{.a = static_cast<double>(random.below(10)) / 100,
                       .b = static_cast<double>(random.below(10)) / 1000,
                       .c = static_cast<double>(random.below(6)) / 1000,
                       .most_ranks = random.within(1, 80)};
    const index_t batch = random.within(1, 300);
    rank_t best = 1;
    for (rank_t n = 1; n <= m.most_ranks && n <= batch; ++n)
      if (m.seconds(batch, n) <= m.seconds(batch, best) * (1 + 1e-12)) best = n;
    CHECK(m(batch) == best);
    inside += best > 1 && best < m.most_ranks && best < batch ? 1 : 0;
  }
  CHECK_DRAWN(inside * 10 > rounds);
  // Neighbours of a flat stretch are equal within rounding, its ends are not: 204,800 ranks are fastest, and 4,194,304
  // are 0.04 % slower.
  const step_model flat{.a = 1, .b = 1e-6, .c = 1e-10, .most_ranks = 1 << 22};
  const rank_t found = flat(1 << 22);
  CHECK(found >= 204'800);
  CHECK(flat.seconds(1 << 22, found) <= flat.seconds(1 << 22, 204'800) * (1 + 1.1e-9));
  CHECK(flat.seconds(1 << 22, found + 1) > flat.seconds(1 << 22, 204'800) * (1 + 0.9e-9));
  CHECK_REFUSED(step_model{}(0), "throughput: a batch of 0 samples; it has at least 1");
}

TEST_CASE("a model is fitted to what it says, and coefficients are never below 0") {
  for (const double a : {0.0, 0.1, 2.0})
    for (const double b : {0.0, 0.001, 0.02})
      for (const double c : {0.0, 0.0005, 0.01}) {
        if (a + b + c == 0) continue;
        const std::vector<measured_throughput> rows = measured({a, b, c, 64}, {64, 256, 512}, 64);
        const step_model found = fit_step_model(rows, 64);
        CHECK(found.a == doctest::Approx(a).epsilon(1e-6));
        CHECK(found.b == doctest::Approx(b).epsilon(1e-6));
        CHECK(found.c == doctest::Approx(c).epsilon(1e-6));
      }
  // faster than in proportion: b B / n alone would need a < 0
  const std::vector<measured_throughput> rows = {{8, 1, 8 / 0.8}, {8, 2, 8 / 0.3}, {8, 4, 8 / 0.05}, {16, 1, 16 / 1.7}};
  const step_model found = fit_step_model(rows, 4);
  CHECK(found.a == 0);
  CHECK(found.b > 0);
  CHECK(found.c == 0);
}

TEST_CASE("of noisy rows: no other coefficients at or above 0 have smaller squares") {
  dice random(2);
  int left_out[3] = {};
  for (int i = 0; i < 60; ++i) {
    const step_model truth{.a = static_cast<double>(random.below(3)),
                           .b = static_cast<double>(random.below(3)) / 10,
                           .c = static_cast<double>(random.below(3)) / 10};
    std::vector<measured_throughput> rows;
    for (index_t row = random.within(6, 12); row > 0; --row) {
      const index_t n = random.within(1, 16), batch = n * random.within(1, 30);
      const double seconds =
          std::abs(truth.seconds(batch, n) + static_cast<double>(random.within(-199, 200)) / 100) + 0.01;
      rows.push_back({batch, n, static_cast<double>(batch) / seconds});
    }
    const step_model found = fit_step_model(rows, 8);
    const double x[] = {found.a, found.b, found.c};
    double slope[3] = {}, scale[3] = {};  // of the squares, by each coefficient: 0, or not below 0 where that is 0
    for (const measured_throughput& row : rows) {
      const double of[] = {1, static_cast<double>(row.batch) / static_cast<double>(row.ranks),
                           static_cast<double>(row.ranks)};
      const double seconds = static_cast<double>(row.batch) / row.samples_per_second;
      for (int j = 0; j < 3; ++j) {
        slope[j] += (found.seconds(row.batch, row.ranks) - seconds) * of[j];
        scale[j] += seconds * of[j];
      }
    }
    for (int j = 0; j < 3; ++j) {
      CHECK(x[j] >= 0);
      if (x[j] > 0) CHECK(std::abs(slope[j]) < 1e-9 * scale[j]);
      else CHECK(slope[j] > -1e-9 * scale[j]);
      left_out[j] += x[j] == 0 ? 1 : 0;
    }
  }
  MESSAGE("left out: a " << left_out[0] << ", b " << left_out[1] << ", c " << left_out[2] << " times");
  for (const int times : left_out) CHECK_DRAWN(times > 5);
}

TEST_CASE("squares are those of the rows, with each choice of coefficients; what tells too little apart is no fit") {
  const std::vector<measured_throughput> rows = {{64, 1, 30}, {64, 2, 50}, {64, 4, 90}, {512, 8, 200}, {512, 64, 300}};
  for (unsigned used = 1; used < 8; ++used) {
    double found[3] = {7, 7, 7}, squares = 7, sum = 0;
    REQUIRE(detail::fit_some(rows, used, found, squares));
    for (int j = 0; j < 3; ++j)
      if ((used & (1u << j)) == 0) CHECK(found[j] == 0);
    for (const measured_throughput& row : rows) {
      const auto batch = static_cast<double>(row.batch), ranks = static_cast<double>(row.ranks);
      const double off = batch / row.samples_per_second - found[0] - found[1] * batch / ranks - found[2] * ranks;
      sum += off * off;
    }
    CHECK(squares == doctest::Approx(sum).epsilon(1e-12));
  }
  // the same a few million times larger or smaller, batches or ranks: nothing hangs on what is counted in
  for (const index_t larger : {index_t{1}, index_t{1'000'003}, index_t{1} << 30})
    for (const rank_t wider : {rank_t{1}, rank_t{1'003}, rank_t{1} << 20}) {
      std::vector<measured_throughput> scaled = rows, lacks_b = rows, lacks_c = rows;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        scaled[i].batch *= larger * wider, scaled[i].ranks *= wider;
        lacks_b[i].batch = 24 * larger * rows[i].ranks;
        lacks_c[i].batch *= larger * wider, lacks_c[i].ranks = wider;
      }
      double found[3] = {}, squares = 0;
      CHECK(detail::fit_some(scaled, 7, found, squares));
      CHECK_FALSE(detail::fit_some(lacks_b, 7, found, squares));
      CHECK(detail::fit_some(lacks_b, 5, found, squares));
      CHECK_FALSE(detail::fit_some(lacks_c, 7, found, squares));
      CHECK(detail::fit_some(lacks_c, 3, found, squares));
    }
}

TEST_CASE(
    "two sizes a millionth apart are too little apart, and a thousandth are not, of samples a rank and of ranks") {
  for (const index_t size : {index_t{1'000'000}, index_t{1'000}}) {
    const std::vector<measured_throughput> samples = {{size, 1, 1e6}, {size + 1, 1, 1e6}},
                                           ranks = {{size, size, 1e6}, {size + 1, size + 1, 1e6}};
    double found[3] = {}, squares = 0;
    CHECK(detail::fit_some(samples, 3, found, squares) == (size == 1'000));
    CHECK(detail::fit_some(ranks, 5, found, squares) == (size == 1'000));
  }
}

TEST_CASE("the first that holds is found by halving: in any range, with few questions") {
  for (rank_t low = 0; low <= 3; ++low)
    for (rank_t high = low; high <= 70; ++high)
      for (rank_t first = low; first <= high; ++first) {
        int asked = 0, most = 0;
        const rank_t found = detail::first_rank(low, high, [&](rank_t n) { return ++asked, n >= first; });
        while (((high - low) >> most) != 0) ++most;
        CHECK((found == first && asked <= most));
      }
}

TEST_CASE("a batch is chosen by a table or a model as by any other function") {
  const step_model m{.a = 0.05, .b = 0.002, .c = 0.0045, .most_ranks = 64};  // sqrt(b B / c) is best
  CHECK(m(128) == 8);
  CHECK(choose_batch(8, 128, 16, m) == batch_choice{256, 0, {1, 2}});
  CHECK(choose_batch(4, 128, 15, m) == batch_choice{480, 0, {1, 2}});
  CHECK(choose_batch(2, 128, 10, m) == batch_choice{256, 2, {1, 2}});
  const throughput_table table(measured(m, {128, 256, 512}, 64));
  CHECK(choose_batch(4, 128, 16, table) == batch_choice{512, 4, {1, 2, 4}});
}

TEST_CASE("what is refused") {
  const double infinite = std::numeric_limits<double>::infinity();
  throughput_table table(std::span<const measured_throughput>{});
  table.add({8, 2, 1.5});
  CHECK_REFUSED(table.add({8, 2, 1.5}), "throughput: a batch of 8 over 2 ranks is there twice");
  CHECK_REFUSED(table.add({8, 9, 1}), "throughput: a batch of 8 samples over 9 ranks; each has at least one");
  CHECK_REFUSED(table.add({8, 0, 1}), "throughput: a batch of 8 samples over 0 ranks");
  for (const double speed : {0.0, -1.0, infinite, std::numeric_limits<double>::quiet_NaN()})
    CHECK_REFUSED(table.add({8, 4, speed}),
                  "throughput: that of a batch of 8 over 4 ranks is not from 1e-100 to 1e100 samples a second");
  CHECK(table.rows().size() == 1);
  const std::vector<measured_throughput> two = {{8, 1, 1}, {8, 2, 1.5}}, alike = {{8, 2, 1}, {16, 4, 2}, {32, 8, 3}};
  CHECK_REFUSED(fit_step_model(two, 8), "throughput: 2 rows do not tell a, b and c of a + b B / n + c n apart");
  CHECK_REFUSED(
      fit_step_model(alike, 8),
      "throughput: 3 rows do not tell a, b and c of a + b B / n + c n apart; three that differ in B / n and in n do");
  CHECK_REFUSED(fit_step_model(two, 0), "throughput: a model of at most 0 ranks; that is 1 to 4194304");
  const std::vector<measured_throughput> three = {{8, 1, 1}, {8, 2, 1.5}, {8, 4, 1.75}};
  CHECK_REFUSED(fit_step_model(three, 4'194'305), "throughput: a model of at most 4194305 ranks; that is 1 to 4194304");
  for (const rank_t ranks : {1, 2, 4'194'303, 4'194'304}) CHECK(fit_step_model(three, ranks).most_ranks == ranks);
  CHECK_REFUSED(table.add({0, 1, 1}), "throughput: a batch of 0 samples over 1 ranks; each has at least one");
  CHECK_REFUSED(table.add({8, 4, 0.99e-100}), "is not from 1e-100 to 1e100 samples a second");
  CHECK_REFUSED(table.add({8, 4, 1.01e100}), "is not from 1e-100 to 1e100 samples a second");
  table.add({8, 8, 1e-100});
  table.add({9, 8, 1e100});
  table.add({1, 1, 1});
  CHECK(table.rows().size() == 4);
  CHECK(table.rows()[1] == measured_throughput{8, 8, 1e-100});
  CHECK(table(8) == 2);
  CHECK(table(1) == 1);
}
