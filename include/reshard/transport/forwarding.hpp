// SPDX-License-Identifier: Apache-2.0
// An end of a transport that does what another one does: what is derived from to watch, or to change, a call. It hands
// on every call that Transport asks for, so a new one can't be forgotten.
// Builds on: transport/transport.hpp, transport/parting.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <reshard/transport/parting.hpp>
#include <reshard/transport/transport.hpp>

namespace reshard {

/// Every call of a transport's end, handed on to `inner`, which outlives it. Who derives from it hides a call with one
/// of their own, and may call inner's in that.
template <Transport T>
struct forwarding {
  T& inner;
  using moves = moves_of<T>;

  rank_t device() const { return asked().device(); }
  rank_t devices() const { return asked().devices(); }
  transport_facts facts() const { return asked().facts(); }
  agreement agree(const proposal& mine) { return inner.agree(mine); }
  std::int64_t all_reduce_max(std::int64_t n) { return inner.all_reduce_max(n); }
  std::vector<std::string> gather(const std::string& text) { return inner.gather(text); }
  void keep_alive() { inner.keep_alive(); }
  void fail(const std::string& sentence) { inner.fail(sentence); }

  bool reaches(memory_place place) const { return asked().reaches(place); }
  void locate(binding& tensors) { inner.locate(tensors); }
  void offer(const binding& tensors) { inner.offer(tensors); }
  void settle() { inner.settle(); }
  void fill_with_zeros(const bound_box& b) { inner.fill_with_zeros(b); }

  void check_messages(bool on) { inner.check_messages(on); }
  void contact(const std::vector<rank_t>& to, const std::vector<rank_t>& from) { inner.contact(to, from); }
  reshard::footprint footprint(const staged_plan& plan) const { return asked().footprint(plan); }
  moves prepare(const staged_plan& plan, const binding& into, page_stages& pages) {
    return inner.prepare(plan, into, pages);
  }
  std::string disagreement(moves& prepared) { return inner.disagreement(prepared); }
  void connect(moves& prepared) { inner.connect(prepared); }
  void move(moves& prepared, index_t slot) { inner.move(prepared, slot); }
  void await(index_t k) { inner.await(k); }

  parting part(index_t slots, bool moved) requires PartingTransport<T> { return inner.part(slots, moved); }
  rank_t decides() const requires PartingTransport<T> { return asked().decides(); }

 private:
  const T& asked() const { return inner; }
};

}  // namespace reshard
