// SPDX-License-Identifier: Apache-2.0
// What a job asks when its size changes, as functions that are true: tests/static asserts them while compiling,
// tests/job/both_times.cpp calls them. Every one fits the compilers' default limits of constant evaluation.
#pragma once

#include <span>

#include <reshard/job/batch.hpp>
#include <reshard/job/documents.hpp>
#include <reshard/job/history.hpp>
#include <reshard/job/order.hpp>
#include <reshard/job/rate.hpp>
#include <reshard/job/throughput.hpp>

namespace cases {

using namespace reshard;

constexpr index_t most = any_samples;

/// 100 samples over 8, 3 and 7 ranks, a step undone between: shares follow each other from 0 to the cursor.
constexpr bool shares_tile_a_history() {
  step_history h;
  h.add(8, 100, 3);
  h.undo_to(2);
  h.add(3, 100);
  h.add(7, 64, 2);
  index_t reached = 0;
  for (index_t s = 0; s < h.version(); ++s)
    for (rank_t r = 0; r < h.run_of(s).ranks; ++r) {
      const interval share = h.share(s, r);
      if (share.begin != reached) return false;
      reached = share.end;
    }
  return reached == h.cursor() && reached == 428 && h.version() == 5 && h.cursor(2) == 200;
}
constexpr bool shares_are_the_formulas() {
  return serial_cursor{1000}.share(100, 2, 7) == interval{1028, 1042} &&
         token_cursor{1000}.share(100, 16, 2, 7) == interval{1000 + 28 * 16, 1000 + 42 * 16} &&
         serial_cursor{0}.share(most, most - 1, most) == interval{most - 1, most} &&
         micro_batch({28, 42}, 1, 4) == interval{31, 35} && token_cursor{5}.targets(1, 4, 8) == interval{14, 22};
}
constexpr bool an_order_has_every_element_once() {
  const sample_order order(37, 20261121, 4);
  std::uint64_t seen = 0;
  for (index_t p = 0; p < 37; ++p) {
    seen |= std::uint64_t{1} << order(p);
    if (order.position_of(order(p)) != p) return false;
  }
  return seen == (std::uint64_t{1} << 37) - 1;
}
constexpr bool an_order_is_the_same_everywhere() {
  return sample_order(1'000'000'000'000, 5, 2)(17) == 551492389527 &&
         sample_order(most, ~std::uint64_t{0}, most)(most - 1) == 3370502097842684146 &&
         sample_set{10, 20261121}.element(30) == 3;
}
constexpr bool a_token_has_its_document() {
  const index_t lengths[] = {3, 0, 0, 4, 2, 0, 9, 9, 9, 9, 9, 9, 9};
  const document_list documents{std::span(lengths)};
  return documents.find(2) == document_place{0, 2} && documents.find(3) == document_place{3, 0} &&
         documents.find(9) == document_place{6, 0} && documents.find(71) == document_place{12, 8};
}
constexpr bool a_batch_is_the_least_that_will_do() {
  const auto optimum = [](index_t batch) { return batch / 32; };
  return choose_batch(4, 256, 16, optimum).batch == 512 && choose_batch(4, 256, 8, optimum).batch == 256 &&
         choose_batch(4, 256, 3, optimum).batch == 256 && choose_batch(16, 256, 12, optimum).batch == 192 &&
         choose_batch(4, 100, 31, optimum).batch == 775;
}
constexpr bool a_model_is_fitted() {
  const measured_throughput rows[] = {{64, 1, 64 / 0.75}, {64, 2, 64 / 0.5}, {128, 4, 128 / 0.5}, {256, 2, 256 / 1.25}};
  const step_model m = fit_step_model(rows, 8);  // 1/4 a + B / n / 128, and nothing by the rank
  return m.a > 0.2499 && m.a < 0.2501 && m.b > 0.9999 / 128 && m.b < 1.0001 / 128 && m.c < 1e-6 && m(64) == 8;
}
constexpr bool a_factor_is_continuous() {
  rate_schedule schedule(256);
  schedule.add({0, 512, 1000});
  schedule.add({300, 1024, 700});
  return schedule.factor(150) == fraction(23, 20) && schedule.factor(300) == fraction(13, 10) &&
         schedule.factor(650) == fraction(53, 20) && schedule.factor(1000) == fraction(4, 1) &&
         rate_factor(1024, 256, rate_power::root) == fraction(2, 1);
}

#define RESHARD_JOB_CASES(DO)           \
  DO(shares_tile_a_history)             \
  DO(shares_are_the_formulas)           \
  DO(an_order_has_every_element_once)   \
  DO(an_order_is_the_same_everywhere)   \
  DO(a_token_has_its_document)          \
  DO(a_batch_is_the_least_that_will_do) \
  DO(a_model_is_fitted)                 \
  DO(a_factor_is_continuous)

}  // namespace cases
