// SPDX-License-Identifier: Apache-2.0
// The wire of processes over MPI: a message is a row of chunks that an int can count. Whoever waits on it hears the
// meeting too. When a world breaks, every process says how much it has sent, and takes what others have sent, so that
// no request is left over; memory of what is left over nonetheless is kept until the process ends.
// Builds on: transport/wire.hpp, transport/mpi/meeting.hpp.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/mpi/meeting.hpp>
#include <reshard/transport/wire.hpp>

namespace reshard {

/// Bytes that are sent in one call of MPI: an int counts them.
inline constexpr bytes_t mpi_chunk_bytes = bytes_t{1} << 30, most_chunk_bytes = std::numeric_limits<int>::max();

/// One process's end of a wire over MPI; the meeting outlives it.
class mpi_wire {
  using clock = std::chrono::steady_clock;

 public:
  /// All ends have the same chunks, of 1 to most_chunk_bytes.
  explicit mpi_wire(mpi_meeting& meeting, bytes_t chunk_bytes = mpi_chunk_bytes)
      : meeting_(&meeting), chunk_bytes_(chunk_bytes), sent_(static_cast<std::size_t>(meeting.devices()), 0),
        received_(sent_), expected_(sent_.size(), false) {}
  mpi_wire(const mpi_wire&) = delete;
  mpi_wire& operator=(const mpi_wire&) = delete;
  ~mpi_wire() {
    try {
      if (!requests_.empty() && detail::mpi_runs()) stop();
    } catch (const std::exception&) {  // memory is kept, as far as it is the wire's
    }
  }

  /// These devices send something to this one, or it to them. Called by both ends of each pair.
  void connect(const std::vector<rank_t>& peers) {
    for (const rank_t peer : peers) expected_[static_cast<std::size_t>(peer)] = true;
  }
  std::vector<rank_t> unconnected() const { return {}; }  // MPI connects where it has to

  void send(message& m) {
    each_chunk(
        m,
        [&](std::byte* data, int bytes, MPI_Request& request) {
          ++sent_[static_cast<std::size_t>(m.peer)];
          return MPI_Isend(data, bytes, MPI_BYTE, static_cast<int>(m.peer), mpi_meeting::messages_tag,
                           meeting_->communicator(), &request);
        },
        false);
  }
  void receive(message& m) {
    each_chunk(
        m,
        [&](std::byte* data, int bytes, MPI_Request& request) {
          return MPI_Irecv(data, bytes, MPI_BYTE, static_cast<int>(m.peer), mpi_meeting::messages_tag,
                           meeting_->communicator(), &request);
        },
        true);
  }

  void poll(std::chrono::microseconds at_most) {
    const bool any = progress();
    const auto now = clock::now();
    if (any || at_most.count() == 0) {
      if (now - heard_ > std::chrono::milliseconds(1)) heard_ = now, meeting_->poll();
    } else {
      detail::mpi_pause pause;
      while (!meeting_->poll() && !progress() && clock::now() - now < at_most) pause.again();
      heard_ = clock::now();
    }
    if (!wrong_.empty()) throw std::runtime_error(std::exchange(wrong_, {}));
  }

  /// Takes what is still on its way, which ends what others send; then receives what nobody sends no longer. Where
  /// nothing moves for a while, because a process says no more, unfinished() is true.
  void stop() {
    if (std::exchange(stopped_, true)) return;
    meeting_->tell_ended(sent_);
    const auto moment = std::min<clock::duration>(meeting_->waits(), std::chrono::seconds(5));
    detail::mpi_pause pause;
    for (auto since = clock::now(); !quiet() && clock::now() - since < moment;) {
      const bool word = meeting_->poll(), moved = progress(), taken = take_stray();
      if (word || moved || taken) since = clock::now();
      else pause.again();
    }
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (chunks_[i].incoming) MPI_Cancel(&requests_[i]);
    progress();
    if (!strays_.empty()) detail::keep_for_mpi(std::move(strays_));
  }
  /// Whether MPI may still read or write the memory of a message that was stopped: an arena, or the tensors themselves.
  bool unfinished() const { return !requests_.empty(); }
  /// Keeps that memory until the process ends.
  template <typename Memory>
  static void keep(Memory&& memory) {
    detail::keep_for_mpi(std::forward<Memory>(memory));
  }
  void others_stopped() {}  // MPI does not say when it reads no more

 private:
  struct posting {
    message* of = nullptr;
    index_t chunks = 0;  // that are not done
  };
  struct chunk {
    std::size_t posting;
    rank_t peer;
    bytes_t bytes;
    bool incoming;
  };
  /// What came and nobody wanted any more.
  struct stray {
    rank_t from = 0;
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  template <typename Post>
  void each_chunk(message& m, Post&& post, bool incoming) {
    m.done = m.bytes == 0;
    if (m.done) return;
    std::size_t at = postings_.size();
    if (free_.empty()) postings_.emplace_back();
    else at = free_.back(), free_.pop_back();
    postings_[at] = {&m, ceil_divide(m.bytes, chunk_bytes_)};
    for (bytes_t begin = 0; begin < m.bytes; begin += chunk_bytes_) {
      const bytes_t bytes = least(chunk_bytes_, m.bytes - begin);
      chunks_.push_back({at, m.peer, bytes, incoming});
      MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
      detail::require_mpi(post(m.data + begin, static_cast<int>(bytes), request),
                          incoming ? "receive a message" : "send a message");
    }
  }

  /// Notes what is done; whether something is. For a message that is longer than was asked for, MPICH calls the error
  /// handler of MPI_COMM_WORLD, which is the program's and by default aborts; others return a code.
  bool progress() {
    if (requests_.empty()) return false;
    const auto count = static_cast<int>(requests_.size());
    indices_.resize(requests_.size()), statuses_.resize(requests_.size());
    int done = 0;
    const int code = MPI_Testsome(count, requests_.data(), &done, indices_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) detail::require_mpi(code, "move messages");
    if (done == MPI_UNDEFINED || done == 0) return false;
    indices_.resize(static_cast<std::size_t>(done));
    for (std::size_t i = 0; i < indices_.size(); ++i)
      note(chunks_[static_cast<std::size_t>(indices_[i])], statuses_[i],
           code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS);
    std::sort(indices_.begin(), indices_.end(), std::greater<>());
    for (const int i : indices_) {
      const auto gap = static_cast<std::size_t>(i);
      requests_[gap] = requests_.back(), requests_.pop_back();
      chunks_[gap] = chunks_.back(), chunks_.pop_back();
    }
    return true;
  }
  void note(const chunk& c, const MPI_Status& status, int error) {
    posting& p = postings_[c.posting];
    int cancelled = 0, came = 0;
    if (c.incoming && error == MPI_SUCCESS) {
      MPI_Test_cancelled(&status, &cancelled);
      MPI_Get_count(&status, MPI_BYTE, &came);
    }
    if (c.incoming && cancelled == 0) ++received_[static_cast<std::size_t>(c.peer)];
    if (wrong_.empty() && cancelled == 0 && (error != MPI_SUCCESS || (c.incoming && came != c.bytes)))
      wrong_ = sentence_about(c, *p.of, came, error);
    if (--p.chunks > 0) return;
    if (wrong_.empty()) p.of->done = true;
    free_.push_back(c.posting);
  }
  std::string sentence_about(const chunk& c, const message& m, int came, int error) const {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(error, &error_class);
    if (error == MPI_SUCCESS || error_class == MPI_ERR_TRUNCATE)
      return detail::text_of("reshard: device ", meeting_->device(), " expects ", m.bytes, " bytes from device ",
                             m.peer, " in stage ", m.stage, ", ", c.bytes, " of them at once, and ",
                             error == MPI_SUCCESS ? std::to_string(came) : std::string("more"), " came");
    char words[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(error, words, &length);
    return detail::text_of("reshard: device ", meeting_->device(), " and device ", m.peer, ", stage ", m.stage, ": ",
                           std::string_view(words));
  }

  /// Whether nothing that others have sent is still to come, and nothing that this device sent is still to go.
  bool quiet() const {
    if (!strays_.empty() || std::any_of(chunks_.begin(), chunks_.end(), [](const chunk& c) { return !c.incoming; }))
      return false;
    for (std::size_t d = 0; d < expected_.size(); ++d) {
      const auto peer = static_cast<rank_t>(d);
      if (!expected_[d] || meeting_->gone(peer)) continue;
      if (meeting_->ended_after(peer) < 0 || received_[d] < meeting_->ended_after(peer)) return false;
    }
    return true;
  }
  /// Takes a chunk for which no message is posted; whether there was one, or one is done.
  bool take_stray() {
    int here = 0;
    MPI_Message which = MPI_MESSAGE_NULL;
    MPI_Status status;
    detail::require_mpi(
        MPI_Improbe(MPI_ANY_SOURCE, mpi_meeting::messages_tag, meeting_->communicator(), &here, &which, &status),
        "take a message");
    if (here != 0) {
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      stray& s = strays_.emplace_back();
      s.from = status.MPI_SOURCE;
      s.bytes.resize(static_cast<std::size_t>(bytes));
      detail::require_mpi(MPI_Imrecv(s.bytes.data(), bytes, MPI_BYTE, &which, &s.request), "take a message");
    }
    const std::size_t before = strays_.size();
    strays_.remove_if([this](stray& s) {
      int done = 0;
      detail::require_mpi(MPI_Test(&s.request, &done, MPI_STATUS_IGNORE), "take a message");
      if (done != 0) ++received_[static_cast<std::size_t>(s.from)];
      return done != 0;
    });
    return here != 0 || strays_.size() != before;
  }

  mpi_meeting* meeting_;
  bytes_t chunk_bytes_;
  std::vector<MPI_Request> requests_;
  std::vector<chunk> chunks_;  // of requests_
  std::vector<posting> postings_;
  std::vector<std::size_t> free_;  // of postings_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<index_t> sent_, received_;  // chunks, by device
  std::vector<bool> expected_;
  std::list<stray> strays_;
  std::string wrong_;
  clock::time_point heard_ = {};
  bool stopped_ = false;
};
static_assert(ClosingWire<mpi_wire>);

}  // namespace reshard
