// SPDX-License-Identifier: Apache-2.0
// Faults that strike a process at one moment of a switch: the exchange's own calls of its wire tell where it is, and
// the process sends itself the signal. What survivors say, and values of which none is zero.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <signal.h>

#include <reshard/memory/binding.hpp>
#include <reshard/switch/ending.hpp>
#include <reshard/transport/sockets.hpp>

#include "left_behind.hpp"

namespace testing {

/// Seconds on the clock that all processes share.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of no element is it zero.
struct never_zero {
  struct of_tensor {
    std::uint64_t base;
    template <typename Element>
    Element value(reshard::index_t index) const {
      return static_cast<Element>((base + static_cast<std::uint64_t>(index)) % 251 + 1);
    }
  };
  of_tensor operator()(const reshard::tensor_box& t) const {
    return {static_cast<std::uint64_t>(t.state * 7 + t.tensor.family * 31 + t.tensor.member * 5)};
  }
};

/// "torn 8 3 0,1,3": the kind, S and C where they are told, and who survives.
inline std::string words_of(const reshard::switch_ending& ending) {
  constexpr const char* kinds[] = {"finished", "refused", "failed", "torn", "unknown"};
  std::string text = kinds[ending.index()];
  std::visit(
      [&](const auto& end) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(end)>, reshard::ended::torn>)
          text += " " + std::to_string(end.stages) + " " + std::to_string(end.in_place);
        if constexpr (requires { end.survivors; })
          for (std::size_t i = 0; i < end.survivors.size(); ++i)
            text += (i == 0 ? " " : ",") + std::to_string(end.survivors[i]);
      },
      ending);
  return text;
}

enum class moment { pack, exchange, unpack, wait };  // wait: for others to have a stage, of any stage

/// Strikes this process, where `number` is a signal, in one stage: the first, one in the middle or the last. Of the
/// exchange it relies on this alone: in slot k it packs stage k, it says which messages it has begun to unpack, and it
/// polls the wire without waiting after every copy.
class striker {
 public:
  int number = 0;
  int third = 0;  // of the stages
  moment when = moment::pack;
  std::uint64_t at = 0;  // which copy, or which look at the wire
  left_behind* left = nullptr;

  void begin(const reshard::exchange_moves& m, reshard::index_t slot) {
    using reshard::index_t;
    copies_ = strikes_at_ = 0;
    if (slot == 0) stage_ = third == 0 ? 0 : third == 2 ? m.slots - 1 : middle(m.slots);
    left->stages = static_cast<long>(m.slots);
    moves_ = &m;
    for (const char several : m.several) left->several += several;
    const std::size_t packs = slot < m.slots ? count(m.out, m.pack, slot) : 0;
    if (when == moment::pack && slot == stage_ && packs > 0) strikes_at_ = 1 + at % packs;
    if (when == moment::exchange && slot == stage_) unsent_ = messages(m.out), looks_ = 1 + at % 20;
    if (when == moment::exchange && slot == stage_ + 1 && unsent_ == 0) strike();
    if (when == moment::unpack && slot == stage_) unpacks_at_ = 1 + at % static_cast<std::uint64_t>(messages(m.in));
  }
  void awaits(bool on) { awaits_ = on; }
  void sent(const reshard::message& m) {
    if (when == moment::exchange && m.stage == stage_ && unsent_ > 0 && --unsent_ == 0 && looks_ == 1) strike();
  }
  void polled(bool after_copy) {
    const double at_last = std::exchange(looked_, now());
    if (at_last > 0 && looked_ - at_last > 0.25) left->away += looked_ - at_last;
    if (after_copy && ++copies_ == strikes_at_) strike();
    if (after_copy && unpacks_at_ > 0 && begun() >= unpacks_at_) strike();
    if (when == moment::exchange && unsent_ == 0 && --looks_ == 0) strike();
    if (when == moment::wait && awaits_) strike();
  }

 private:
  reshard::index_t middle(reshard::index_t stages) const {
    return stages < 3 ? 0 : 1 + static_cast<reshard::index_t>(at % static_cast<std::uint64_t>(stages - 2));
  }
  /// Copies of the messages of a stage.
  static std::size_t count(const std::vector<reshard::message>& list, const reshard::job_list& jobs,
                           reshard::index_t stage) {
    std::size_t copies = 0;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].stage == stage)
        copies += jobs.end(static_cast<reshard::index_t>(i)) - jobs.begin(static_cast<reshard::index_t>(i));
    return copies;
  }
  /// The messages of the stage that are unpacked, or of which that was begun.
  std::uint64_t begun() const {
    std::uint64_t result = 0;
    for (std::size_t i = 0; i < moves_->in.size(); ++i)
      result += moves_->in[i].stage == stage_ && moves_->unpacked[i] != 0 ? 1 : 0;
    return result;
  }
  long messages(const std::vector<reshard::message>& list, bool undone_alone = false) const {
    long result = 0;
    for (const reshard::message& m : list) result += m.stage == stage_ && !(undone_alone && m.done) ? 1 : 0;
    return result;
  }
  void strike() {
    if (number == 0 || left->reached != 0) return;
    left->untouched = messages(moves_->out, true) + messages(moves_->in, true);  // on their way
    left->unsent = static_cast<long>(
        std::count_if(moves_->out.begin(), moves_->out.end(), [](const reshard::message& m) { return !m.done; }));
    left->seconds = now();
    left->reached = 1;
    ::raise(number);
  }

  const reshard::exchange_moves* moves_ = nullptr;
  reshard::index_t stage_ = 0;
  std::size_t copies_ = 0, strikes_at_ = 0;  // of this slot, counted from 1
  std::uint64_t unpacks_at_ = 0;             // messages of the stage, counted from 1
  long unsent_ = -1;
  std::uint64_t looks_ = 0;
  double looked_ = 0;
  bool awaits_ = false;
};

/// The wire of sockets, whose calls a striker hears.
class heard_wire {
 public:
  heard_wire(reshard::socket_meeting& meeting, striker& strikes) : inner_(meeting), strikes_(&strikes) {}
  void connect(const std::vector<reshard::rank_t>& peers) { inner_.connect(peers); }
  std::vector<reshard::rank_t> unconnected() const { return inner_.unconnected(); }
  void send(reshard::message& m) {
    inner_.send(m);
    strikes_->sent(m);
  }
  void receive(reshard::message& m) { inner_.receive(m); }
  void poll(std::chrono::microseconds at_most) {
    inner_.poll(at_most);
    strikes_->polled(at_most.count() == 0);
  }
  void stop() { inner_.stop(); }

 private:
  reshard::socket_wire inner_;
  striker* strikes_;
};

namespace detail {
struct struck_parts {
  struck_parts(reshard::rank_t device, const std::vector<std::string>& addresses, reshard::listening_socket listening,
               reshard::patience wait, striker& strikes)
      : meeting(device, addresses, std::move(listening), wait), wire(meeting, strikes) {}

  reshard::socket_meeting meeting;
  heard_wire wire;
};
}  // namespace detail

/// A socket_endpoint, to which a striker happens.
class struck_endpoint : private detail::struck_parts, public reshard::exchange<reshard::socket_meeting, heard_wire> {
 public:
  struck_endpoint(reshard::rank_t device, const std::vector<std::string>& addresses,
                  reshard::listening_socket listening, reshard::patience wait, striker& strikes,
                  reshard::bytes_t round_bytes = reshard::usual_round_bytes)
      : detail::struck_parts(device, addresses, std::move(listening), wait, strikes),
        exchange(detail::struck_parts::meeting, detail::struck_parts::wire, reshard::exchange_as::asynchronous,
                 round_bytes),
        strikes_(&strikes) {}
  void move(reshard::exchange_moves& m, reshard::index_t slot) {
    strikes_->begin(m, slot);
    exchange::move(m, slot);
  }
  void await(reshard::index_t k) {
    strikes_->awaits(true);
    exchange::await(k);
    strikes_->awaits(false);
  }

 private:
  striker* strikes_;
};
static_assert(reshard::Transport<struck_endpoint>);

}  // namespace testing
