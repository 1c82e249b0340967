// SPDX-License-Identifier: Apache-2.0
// An endpoint that does what another one does: what tests derive from to change, or to watch, one call.
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include <reshard/exec/transport.hpp>

namespace testing {

template <reshard::Transport Endpoint>
struct forwarding {
  Endpoint& inner;
  using moves = reshard::moves_of<Endpoint>;

  reshard::rank_t device() const { return inner.device(); }
  reshard::rank_t devices() const { return inner.devices(); }
  void offer(const reshard::binding& tensors) { inner.offer(tensors); }
  std::int64_t all_reduce_max(std::int64_t n) { return inner.all_reduce_max(n); }
  reshard::bytes_t staging_bytes(const reshard::staged_plan& plan, reshard::index_t k) {
    return inner.staging_bytes(plan, k);
  }
  moves prepare(const reshard::staged_plan& plan, const reshard::binding& into, reshard::page_stages& pages) {
    return inner.prepare(plan, into, pages);
  }
  void move(moves& prepared, reshard::index_t k) { inner.move(prepared, k); }
  reshard::agreement agree(const reshard::proposal& mine) { return reshard::agree_over(inner, mine); }
  std::vector<std::string> gather(const std::string& text) requires requires(Endpoint& e) {
    { e.gather(text) } -> std::same_as<std::vector<std::string>>;
  }
  { return inner.gather(text); }
  std::string disagreement(moves& prepared) { return reshard::disagreement_over(inner, prepared); }
  reshard::index_t lag() const { return reshard::lag_of(inner); }
  reshard::index_t written_in(reshard::index_t k) const { return reshard::slot_that_writes(inner, k); }
  reshard::bytes_t fixed_bytes() const { return reshard::fixed_bytes_of(inner); }
  void check_messages(bool on) { reshard::check_messages_over(inner, on); }
  void await(reshard::index_t k) { reshard::await_stage(inner, k); }
  void fail(const std::string& sentence) { inner.fail(sentence); }
};

}  // namespace testing
