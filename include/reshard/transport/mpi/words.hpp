// SPDX-License-Identifier: Apache-2.0
// Words between processes over MPI: short bodies of bytes under one tag, sent and taken without waiting. What is on its
// way when all ends is kept, as MPI may use it yet.
// Builds on: transport/mpi/communicator.hpp.
#pragma once

#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reshard/transport/mpi/communicator.hpp>

namespace reshard {

/// A word that has come.
struct mpi_word {
  rank_t from = 0;
  std::string body;
};

/// One process's end of words over a communicator, which outlives it. From one process they come in the order in which
/// they were sent.
class mpi_words {
 public:
  mpi_words(const mpi_communicator& over, int tag) : own_(&over), tag_(tag) {}
  mpi_words(const mpi_words&) = delete;
  mpi_words& operator=(const mpi_words&) = delete;
  ~mpi_words() {
    if (heard_ != nullptr) detail::keep_for_mpi(std::move(heard_));
    if (!sent_.empty()) detail::keep_for_mpi(std::move(sent_));
  }

  /// Refused from 2 GiB on, which MPI does not count.
  void send(std::string body, const std::vector<rank_t>& to) {
    if (body.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
      refuse("device ", own_->device(), " has ", body.size(), " bytes to say at once; MPI takes 2147483647");
    if (to.empty()) return;
    spoken& s = sent_.emplace_back();
    s.body = std::move(body);
    s.requests.reserve(to.size());
    for (const rank_t d : to)
      detail::require_mpi(MPI_Isend(s.body.data(), static_cast<int>(s.body.size()), MPI_BYTE, static_cast<int>(d), tag_,
                                    own_->get(), &s.requests.emplace_back(MPI_REQUEST_NULL)),
                          "send a word");
  }
  /// Forgets those that have gone.
  void settle() {
    sent_.remove_if([](spoken& s) {
      int done = 0;
      detail::require_mpi(
          MPI_Testall(static_cast<int>(s.requests.size()), s.requests.data(), &done, MPI_STATUSES_IGNORE),
          "send a word");
      return done != 0;
    });
  }
  /// Whether all that was sent has gone.
  bool all_sent() const { return sent_.empty(); }
  /// Whether MPI may use memory of these words yet.
  bool busy() const { return heard_ != nullptr || !sent_.empty(); }

  /// The next word that has come whole, if there is one. One is fetched at a time.
  std::optional<mpi_word> hear() {
    if (heard_ == nullptr) {
      int here = 0;
      MPI_Message which = MPI_MESSAGE_NULL;
      MPI_Status status;
      detail::require_mpi(MPI_Improbe(MPI_ANY_SOURCE, tag_, own_->get(), &here, &which, &status), "hear a word");
      if (here == 0) return {};
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      heard_ = std::make_unique<heard>();
      heard_->word.from = status.MPI_SOURCE;
      heard_->word.body.resize(static_cast<std::size_t>(bytes));
      detail::require_mpi(MPI_Imrecv(heard_->word.body.data(), bytes, MPI_BYTE, &which, &heard_->request),
                          "hear a word");
    }
    int done = 0;
    detail::require_mpi(MPI_Test(&heard_->request, &done, MPI_STATUS_IGNORE), "hear a word");
    if (done == 0) return {};
    return std::move(std::exchange(heard_, nullptr)->word);
  }

 private:
  /// A word on its way, to one or to several.
  struct spoken {
    std::string body = {};
    std::vector<MPI_Request> requests = {};
  };
  struct heard {
    mpi_word word = {};
    MPI_Request request = MPI_REQUEST_NULL;
  };

  const mpi_communicator* own_;
  int tag_;
  std::list<spoken> sent_;
  std::unique_ptr<heard> heard_;
};

}  // namespace reshard
