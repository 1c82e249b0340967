// SPDX-License-Identifier: Apache-2.0
// A connection of somebody who asks a store, as the store has it: what has come, what is still to be sent, and what is
// waited for. Nothing here waits.
// Builds on: elastic/served/words.hpp, transport/socket.hpp.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>

#include <reshard/elastic/served/words.hpp>
#include <reshard/transport/socket.hpp>

namespace reshard::detail {

/// One who asks. A question is taken once the answer before it has gone.
class store_caller {
 public:
  explicit store_caller(owned_descriptor link) : link_(std::move(link)) {}

  bool gone() const { return !link_.open(); }
  /// Waits for changes until then.
  struct waiting {
    store_request what;
    patience until{};
  };
  std::optional<waiting> waits;

  pollfd watched() const {
    const bool busy = waits.has_value() || !out_.empty();
    return {link_.number(), static_cast<short>((busy ? 0 : POLLIN) | POLLRDHUP | (out_.empty() ? 0 : POLLOUT)), 0};
  }
  /// Takes what has come, a question's length at most. Where the other end is gone nobody hears an answer: what it had
  /// asked is not done.
  void receive(short happened) {
    if ((happened & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return link_.close();
    if ((happened & POLLIN) == 0) return;
    std::array<char, 65536> some;
    while (in_.size() < 4 + most_asked + store_greeting.size()) {
      const socket_progress p = receive_some(link_.number(), reinterpret_cast<std::byte*>(some.data()), some.size());
      if (p.ended) return link_.close();
      if (p.bytes == 0) return;
      in_.append(some.data(), p.bytes);
    }
  }
  /// The next question, or nothing (yet); what is no question ends the connection with a sentence.
  std::optional<store_request> next() {
    if (gone() || ends_ || waits || !out_.empty()) return std::nullopt;
    try {
      if (!greeted_) {
        const std::string_view said = std::string_view(in_).substr(0, store_greeting.size());
        if (!store_greeting.starts_with(said)) refuse("this is a store of reshard, and that was no greeting");
        if (said.size() < store_greeting.size()) return std::nullopt;
        in_.erase(0, said.size());
        greeted_ = true;
      }
      const std::optional<std::string_view> frame = frame_at(in_, most_asked);
      if (!frame) return std::nullopt;
      frame_reader from(*frame);
      store_request asked = read_request(from);
      if (!from.empty()) refuse("a frame that is longer than what it says");
      if (asked.what > store_request::kind::changes) refuse("a frame asks for what only a journal says");
      in_.erase(0, 4 + frame->size());
      return asked;
    } catch (const refusal& no) {
      end(no.what());
      return std::nullopt;
    }
  }
  /// Whether another question has come whole, and may be taken.
  bool has_more() const {
    constexpr std::size_t any = ~std::size_t{0};
    return !gone() && !ends_ && !waits && out_.empty() && greeted_ && frame_at(in_, any).has_value();
  }

  /// Kept until it is sent.
  void say(const store_answer& a) { out_ += framed(words_of(a)); }
  void end(std::string sentence) {
    say({0, false, {}, std::move(sentence)});
    ends_ = true;
  }
  void send() {
    if (gone() || out_.empty()) return;
    const socket_progress p =
        send_some(link_.number(), reinterpret_cast<const std::byte*>(out_.data()) + sent_, out_.size() - sent_);
    sent_ += p.bytes;
    if (sent_ == out_.size()) out_.clear(), sent_ = 0;
    if (p.ended || (ends_ && out_.empty())) link_.close();
  }

 private:
  owned_descriptor link_;
  std::string in_, out_;
  std::size_t sent_ = 0;
  bool greeted_ = false, ends_ = false;
};

}  // namespace reshard::detail
