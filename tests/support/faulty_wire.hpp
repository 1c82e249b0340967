// SPDX-License-Identifier: Apache-2.0
// A wire of mailboxes that does one wrong thing, of the kinds that a check of messages must find.
#pragma once

#include <cstring>
#include <deque>
#include <vector>

#include <reshard/transport/threads/mailbox.hpp>

namespace testing {

/// What goes wrong with a device's n-th message, counted from 0 as it posts them.
struct wire_fault {
  enum class kind { none, changed, cut, swapped, twice, replayed } is = kind::none;
  reshard::rank_t device = -1;  // who sends it; who receives it, where it is cut
  std::size_t number = 0;
  std::size_t other = 0;    // swapped: with which later one; replayed: in whose place it comes once more
  reshard::bytes_t at = 0;  // changed: which bit; cut: how many bytes arrive
};

class faulty_wire {
 public:
  struct posted {
    reshard::rank_t peer;
    reshard::index_t stage;
    reshard::bytes_t bytes;
  };
  std::vector<posted> sent, received;

  faulty_wire(std::deque<reshard::mailbox>& boxes, reshard::rank_t device, const wire_fault& fault)
      : inner_(boxes, device), fault_(device == fault.device ? fault : wire_fault{}) {}

  void connect(const std::vector<reshard::rank_t>& peers) { inner_.connect(peers); }
  std::vector<reshard::rank_t> unconnected() const { return inner_.unconnected(); }
  void send(reshard::message& m) {
    using kind = wire_fault::kind;
    const std::size_t number = sent.size();
    sent.push_back({m.peer, m.stage, m.bytes});
    const bool this_one = number == fault_.number && fault_.is != kind::none;
    if (this_one && fault_.is == kind::changed) {  // on its way: where it lies, perhaps in a tensor, it stays as it is
      copy_.assign(m.data, m.data + m.bytes);
      copy_[static_cast<std::size_t>(fault_.at / 8)] ^= std::byte{1} << (fault_.at % 8);
      m.done = false;
      changed_ = &m;
      instead_[0] = {m.peer, m.stage, copy_.data(), m.bytes};
      inner_.send(instead_[0]);
      return;
    }
    if (this_one && (fault_.is == kind::twice || fault_.is == kind::replayed)) copy_.assign(m.data, m.data + m.bytes);
    if (number == fault_.other && fault_.is == kind::replayed)
      std::memcpy(m.data, copy_.data(), std::min(copy_.size(), static_cast<std::size_t>(m.bytes)));
    if (this_one && fault_.is == kind::swapped) {
      m.done = false;
      held_ = &m;
      return;
    }
    if (number == fault_.other && fault_.is == kind::swapped) {  // each goes in the other's place
      m.done = false;
      late_ = &m;
      instead_[0] = {held_->peer, held_->stage, m.data, m.bytes};
      instead_[1] = {m.peer, m.stage, held_->data, held_->bytes};
      inner_.send(instead_[0]);
      inner_.send(instead_[1]);
      return;
    }
    inner_.send(m);
    if (this_one && fault_.is == kind::twice) {
      instead_[0] = {m.peer, m.stage, copy_.data(), m.bytes};
      inner_.send(instead_[0]);
    }
  }
  void receive(reshard::message& m) {
    if (received.size() == fault_.number && fault_.is == wire_fault::kind::cut) {
      cut_ = &m;
      copy_.assign(m.data, m.data + m.bytes);
    }
    received.push_back({m.peer, m.stage, m.bytes});
    inner_.receive(m);
  }
  void poll(std::chrono::microseconds at_most) {
    inner_.poll(at_most);
    if (changed_ != nullptr && instead_[0].done) changed_->done = true;
    if (late_ != nullptr && instead_[0].done) late_->done = true;
    if (late_ != nullptr && instead_[1].done) held_->done = true;
    if (cut_ != nullptr && cut_->done) {  // the rest is as it was
      std::memcpy(cut_->data + fault_.at, copy_.data() + fault_.at, copy_.size() - static_cast<std::size_t>(fault_.at));
      cut_ = nullptr;
    }
  }
  void stop() { inner_.stop(); }

 private:
  std::vector<std::byte> copy_;
  reshard::message instead_[2];
  reshard::message *held_ = nullptr, *late_ = nullptr, *cut_ = nullptr, *changed_ = nullptr;
  reshard::mailbox_wire inner_;  // is stopped before they go
  wire_fault fault_;
};
static_assert(reshard::Wire<faulty_wire>);

}  // namespace testing
